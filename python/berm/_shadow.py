# SPDX-License-Identifier: Apache-2.0
"""A shadow run, from `import torch` on: which allocator, what is collected, the report at the end.

SERVER. With BERM_SHADOW_SERVER=IN,OUT (two file descriptors) the process that imports torch goes no
further itself: for each line `ALLOCATOR MEMORY KERNEL_NS FOLDER WHAT` that it reads it forks a child, which
goes on as the program on a device of that memory, and it answers with the child's exit status. So
that torch is imported once for many runs. Nothing has touched the device before the fork.

The environment, besides _hook's: BERM_SHADOW_WHAT (report; trial: only whether it ends; bound: a report,
and no word of the program),
BERM_SHADOW_VALUES, BERM_SHADOW_STEPS, BERM_SHADOW_SNAPSHOT, BERM_SHADOW_RECORD."""
import atexit
import ctypes
import json
import os
import signal
import sys
import threading
import time

from berm import _collect, _hook

_OWN = os.path.dirname(os.path.realpath(__file__)) + os.sep

def begin(torch):
    """Called once, after torch was imported."""
    server = os.environ.pop("BERM_SHADOW_SERVER", None)
    if server is not None:
        _serve(*map(int, server.split(",")))  # returns in a child
    _choose(torch, os.environ.get("BERM_SHADOW_ALLOCATOR", "native"))
    _values(torch)
    if os.environ.get("BERM_SHADOW_WHAT") in ("report", "bound"):
        run = _Run(torch)
        atexit.register(run.end)
        sys.excepthook = run.excepthook
        if "RANK" in os.environ:
            _Stopper(run).begin()
    else:
        sys.excepthook = _trial_excepthook
    _collect.stop_after(int(os.environ.get("BERM_SHADOW_STEPS") or 0))  # the last of the hooks


def _serve(commands, answers):
    with os.fdopen(commands, encoding="utf-8") as lines:
        for line in iter(lines.readline, ""):
            allocator, memory, kernel_ns, folder, what = line.rstrip("\n").split("\t")
            child = os.fork()
            if child == 0:
                os.close(answers)
                os.environ.update(BERM_SHADOW_ALLOCATOR=allocator, BERM_SHADOW_FOLDER=folder,
                                  BERM_SHADOW_WHAT=what)
                if memory != "0":
                    os.environ["SIMCUDA_MEMORY"] = memory
                if kernel_ns:
                    os.environ["SIMCUDA_KERNEL_NS"] = kernel_ns
                if what != "report":
                    _be_silent()
                return
            _, status = os.waitpid(child, 0)
            os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _be_silent():
    """What the program prints was printed by its first run; its errors are kept aside."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    for name in ("BERM_SHADOW_SNAPSHOT", "BERM_SHADOW_RECORD"):  # of the first run
        os.environ.pop(name, None)
    errors = os.open(os.path.join(os.environ["BERM_SHADOW_FOLDER"], "errors"),
                     os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(errors, 2)
    os.close(errors)


def _choose(torch, allocator):
    if allocator == "berm":
        _hook.install(torch)
    elif allocator == "expandable":
        setter = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
        if setter is None:
            setter = torch.cuda.memory._set_allocator_settings
        setter("expandable_segments:True")


def _values(torch):
    mode = os.environ.get("BERM_SHADOW_VALUES", "small")
    if mode == "none":
        return
    from berm import _values as values
    values.start(torch, mode)


def _is_shortage(kind, error):
    return kind.__name__ == "OutOfMemoryError" or "CUDA out of memory" in str(error)


def _without_own(traceback):
    """The traceback without the frames of this package, which the program does not have."""
    if traceback is None:
        return None
    traceback.tb_next = _without_own(traceback.tb_next)
    name = traceback.tb_frame.f_code.co_filename
    return traceback.tb_next if name.startswith(_OWN) else traceback


def _trial_excepthook(kind, error, traceback):
    if _is_shortage(kind, error):
        # A file says so (to cli/shadow_fit.c): torchrun ends with a status of its own.
        with open(os.path.join(os.environ["BERM_SHADOW_FOLDER"], "shortage"), "wb"):
            pass
        os._exit(1)
    sys.__excepthook__(kind, error, traceback)


class _Run:
    """One process of a shadow run."""

    def __init__(self, torch):
        self._torch = torch
        self._start = time.monotonic()
        self._collector = _collect.Collector(torch)
        self._error = None
        self._is_begun = self._is_written = False
        self._lock = threading.RLock()

    def excepthook(self, kind, error, traceback):
        """Keeps what the program died of, and prints it as Python does."""
        self._error = {"type": kind.__name__, "text": str(error),
                       "is_shortage": _is_shortage(kind, error)}
        sys.__excepthook__(kind, error, _without_own(traceback))

    def end(self, stopped_by=None):
        """Writes the report, once, whatever way the program ended; returns whether it is there: not
        in a signal's handler that came while this thread writes it. `stopped_by`: of a program that
        does not end by itself."""
        with self._lock:
            if not self._is_begun:
                self._is_begun = True
                if stopped_by is not None and self._error is None:
                    self._error = {"type": stopped_by, "text": "", "is_shortage": False}
                self._write()
                self._is_written = True
            return self._is_written

    def _write(self):
        report = self._collector.finish()
        values = sys.modules.get("berm._values")
        report.update(
            values=values.counters() if values is not None else None,
            pid=os.getpid(), rank=os.environ.get("RANK"), ranks=os.environ.get("WORLD_SIZE"),
            seconds=time.monotonic() - self._start, torch=self._torch.__version__,
            error=self._error, allocator=os.environ.get("BERM_SHADOW_ALLOCATOR", "native"))
        path = os.path.join(os.environ["BERM_SHADOW_FOLDER"], f"report-{os.getpid()}.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(report, file)
        os.replace(path + ".new", path)


class _Stopper:
    """A rank that waits for another, which has failed, is ended by torchrun with SIGTERM: its report
    is written before. The main thread may be inside a collective, where no handler of Python's runs;
    so a thread is told of the signal too."""

    def __init__(self, run):
        self._run = run
        self._ends = (-1, -1)

    def begin(self):
        if threading.current_thread() is not threading.main_thread() or \
                signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        self._ends = os.pipe()
        os.set_blocking(self._ends[1], False)
        signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        os.register_at_fork(after_in_child=self._forget)
        threading.Thread(target=self._watch, name="berm-stop", daemon=True).start()

    def _is_ours(self):
        return signal.getsignal(signal.SIGTERM) == self._stop

    def _forget(self):
        if self._is_ours():
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _watch(self):
        while number := os.read(self._ends[0], 1):
            if number[0] == signal.SIGTERM and self._is_ours():
                self._stop()

    def _stop(self, *_):
        if not self._run.end("SIGTERM"):
            return  # it is ending already
        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)  # Python's own is the main thread's
        os.kill(os.getpid(), signal.SIGTERM)
