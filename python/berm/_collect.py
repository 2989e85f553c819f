# SPDX-License-Identifier: Apache-2.0
"""What a shadow run looks at while the program runs: torch's own memory history with the user's
lines, which tensors an optimizer holds at each step, which module is running, and at the end the
simulated device's counters. The account of it is made by berm._account, without torch."""
import ctypes
import importlib
import os
import resource
import sys
import time

from berm import _account

_EVENTS_MAX = 20_000_000


def now_us():
    """The clock of torch's traces."""
    return time.time_ns() // 1000


def _optimizers():
    return importlib.import_module("torch.optim.optimizer")


def stop_after(steps):
    """Ends the program, as by sys.exit(), after that many steps of an optimizer; 0: never."""
    if steps <= 0:
        return
    done = 0

    def count(*_):
        nonlocal done
        done += 1
        if done >= steps:
            sys.exit(0)

    _optimizers().register_optimizer_step_post_hook(count)


class _Counters(ctypes.Structure):
    """simcuda_counters_t of simcuda.h."""
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("kernels", "copies", "host_reads", "host_read_bytes", "stub_hits")]


def device_counters():
    """What was not real, by the simulated device: counters, and stubs with their hits."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        read, stub = driver.simcuda_counters_read, driver.simcuda_stub_read
    except (OSError, AttributeError):
        return {}, []
    counters = _Counters()
    read(ctypes.byref(counters))
    stubs, index = [], 0
    library, name, hits = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_uint64()
    while stub(ctypes.c_size_t(index), ctypes.byref(library), ctypes.byref(name),
               ctypes.byref(hits)) == 0:
        stubs.append({"library": library.value.decode(), "name": name.value.decode(),
                      "hits": hits.value})
        index += 1
    return {name: getattr(counters, name) for name, _ in counters._fields_}, stubs


class _Ledger(ctypes.Structure):
    """simcuda_ledger_t of simcuda.h."""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "reservations", "reserved_address_bytes", "handles", "handle_bytes", "mappings",
        "mapped_bytes", "mappings_peak", "address_bytes_peak", "used_bytes_peak", "allocations",
        "allocation_bytes", "used_bytes", "streams", "events", "contexts_retained", "imports",
        "import_bytes", "pool_bytes", "context_bytes")]


def _context_bytes(device):
    ledger = _Ledger()
    try:
        ctypes.CDLL("libcuda.so.1").simcuda_ledger_read(device, ctypes.byref(ledger))
    except (OSError, AttributeError):
        return 0
    return ledger.context_bytes


class Collector:
    """Begins at once. Not thread-safe, but the hooks run wherever the program runs."""

    def __init__(self, torch):
        self._torch = torch
        self._marks = []  # (time, {address: category}) of the optimizers' tensors
        self._steps = []  # times at which a step of an optimizer ended
        self._modules = []  # names of the modules that are running
        self._names = {}  # id of a module -> its qualified name
        self._begin_history()
        self._begin_steps()
        self._begin_modules()

    def _begin_history(self):
        try:
            self._torch.cuda.memory._record_memory_history(
                enabled="all", context="alloc", stacks="python", max_entries=_EVENTS_MAX)
        except TypeError:  # an older torch
            self._torch.cuda.memory._record_memory_history(True)

    def _begin_steps(self):
        def before(optimizer, *_):
            self._mark(optimizer)

        def after(optimizer, *_):
            self._mark(optimizer)
            self._steps.append(now_us())

        module = _optimizers()
        module.register_optimizer_step_pre_hook(before)
        module.register_optimizer_step_post_hook(after)

    def _mark(self, optimizer):
        found = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._note(found, parameter.grad, "gradients")
                self._note(found, parameter, "parameters")
                for value in optimizer.state.get(parameter, {}).values():
                    self._note(found, value, "optimizer state")
        self._marks.append((now_us(), found))

    def _mark_parameters(self, module):
        found = {}
        for tensor in module.parameters():
            self._note(found, tensor, "parameters")
        for tensor in module.buffers():
            self._note(found, tensor, "buffers")
        self._marks.append((now_us(), found))

    def _note(self, found, tensor, category):
        if isinstance(tensor, self._torch.Tensor):
            local = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
            if local.is_cuda:
                found.setdefault(local.untyped_storage().data_ptr(), category)

    def _begin_modules(self):
        setter = getattr(self._torch.cuda.memory, "_set_memory_metadata", None)
        if setter is None:
            return

        def before(module, _):
            if not self._modules or id(module) not in self._names:
                root = type(module).__name__
                for name, child in module.named_modules():
                    self._names[id(child)] = f"{root}.{name}" if name else root
                self._mark_parameters(module)
            self._modules.append(self._names[id(module)])
            setter(self._modules[-1])

        def after(*_):
            if self._modules:
                self._modules.pop()
            setter(self._modules[-1] if self._modules else "")

        hooks = importlib.import_module("torch.nn.modules.module")
        hooks.register_module_forward_pre_hook(before)
        hooks.register_module_forward_hook(after, always_call=True)

    # --- the end -----------------------------------------------------------------------------

    def finish(self):
        """The report of this process, as plain values."""
        counters, stubs = device_counters()
        report = {"devices": [], "counters": counters, "stubs": stubs,
                  "steps": len(self._steps),
                  "host_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
        if not self._torch.cuda.is_initialized():
            return report
        snapshot = self._torch.cuda.memory._snapshot()
        self._save(snapshot)
        for device, trace in enumerate(snapshot["device_traces"]):
            if not any(event["action"] == _account.ALLOC for event in trace):
                continue  # the context of a device that is not used
            stats = self._torch.cuda.memory_stats(device)
            one = _account.of_trace(trace, self._marks, self._steps, _is_users)
            one.update(
                context_bytes=_context_bytes(device),
                device=device, name=self._torch.cuda.get_device_name(device),
                memory_bytes=self._torch.cuda.mem_get_info(device)[1],
                free_bytes=self._torch.cuda.mem_get_info(device)[0],
                reserved_bytes=stats["reserved_bytes.all.current"],
                peak_allocated_bytes=stats["allocated_bytes.all.peak"],
                peak_reserved_bytes=stats["reserved_bytes.all.peak"],
                device_allocs=stats["num_device_alloc"], retries=stats["num_alloc_retries"])
            report["devices"].append(one)
        return report

    def _save(self, snapshot):
        rank = os.environ.get("RANK")
        path = os.environ.get("BERM_SHADOW_SNAPSHOT")
        if path:
            import pickle
            with open(f"{path}.{rank}" if rank else path, "wb") as file:
                pickle.dump(snapshot, file, protocol=4)
        path = os.environ.get("BERM_SHADOW_RECORD")
        if path:
            traces = snapshot["device_traces"]
            _account.write_csv(max(traces, key=len), f"{path}.{rank}" if rank else path)


_OWN = os.path.dirname(os.path.realpath(__file__)) + os.sep


def _is_users(filename):
    """Whether a frame is of the program, not of torch or of berm."""
    return not (f"{os.sep}torch{os.sep}" in filename or filename.startswith(_OWN) or
                filename.startswith("<") or f"{os.sep}contextlib.py" in filename)
