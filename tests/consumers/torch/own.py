# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own tests of its CUDA allocator hold it to, as cases of our own: each checks one
behaviour, and is run with true values (--values all) by the native allocator, by expandable segments
and by berm's subclass. A case that native passes on the simulated device must pass under berm.

A case says which tests of PyTorch's have that behaviour (`of`), in words what it is, and where it is
not met (`unmet`: by route, the reason). What is said not to be met must fail: else the reason is out
of date. The cases are of torch TABLE_VERSION: of an older one those that its own native allocator
does not meet are named, and held against nobody. docs/adapters/pytorch.md has a table of all cases, which test_own_table.py compares."""
import collections
import contextlib
import faulthandler
import gc
import json
import os
import pathlib
import subprocess
import sys
import traceback

import torch_test

ROUTES = ("native", "expandable", "subclass")
MIB = 1 << 20
TABLE_VERSION = (2, 15)
SLEEP_CYCLES = 50_000_000  # of the device: some 25 ms

Case = collections.namedtuple("Case", "name of words unmet keeps on_default function")


class Group:
    """The cases of one file, in the order in which they are written."""

    def __init__(self, file, **environment):
        self.file, self.environment, self.cases = file, environment, []
        self.not_of_version = set()  # names of cases

    def case(self, of, words, unmet=None, keeps=False, on_default=False):
        """Registers a function that takes a Child. `keeps`: it may leave memory that is in use.
        `on_default`: it is run with the default stream, else with another."""
        unmet = unmet or {}
        assert set(unmet) <= set(ROUTES) and all(unmet.values()), unmet

        def register(function):
            self.cases.append(Case(function.__name__, of, words, unmet, keeps, on_default, function))
            return function
        return register

    def run(self):
        """In the first process: runs all cases (or those named by arguments) under all routes."""
        route = os.environ.get("BERM_TEST_ROUTE")
        chosen = sys.argv[1:]
        cases = [case for case in self.cases if not chosen or case.name in chosen]
        if route is not None:
            child = Child(route)
            print(json.dumps({"version": child.torch.__version__,
                              "outcomes": {case.name: child.outcome(case) for case in cases}}))
            sys.stdout.flush()
            os._exit(0)  # what a case that failed left behind is not this test's
        if os.environ.get("BERM_SANITIZE"):
            torch_test.skip("PyTorch is not sanitized")
        routes = os.environ.get("BERM_TEST_ROUTES", ",".join(ROUTES)).split(",")
        failed = sum([self._check(each, cases, chosen) for each in routes])
        sys.exit(1 if failed else 0)

    def _check(self, route, cases, chosen):
        # Memory that has contents is asked for early: berm makes the device when it is installed.
        more = {"SIMCUDA_GPU": "H100-80", "SIMCUDA_BACKED": "1", "SIMCUDA_ACTS_AT_LAUNCH": "1",
                **self.environment}
        if route == "expandable":
            more["SIMCUDA_CAPTURE_EDITS"] = "1"  # it edits mappings while a stream is captured
        status, output, errors = torch_test.run_child(self.file, route, chosen, **more)
        if status != 0:
            print(f"FAIL: {route}: exit {status}: {errors[-3000:]}")
            return 1
        answer = json.loads(output.splitlines()[-1])
        outcomes, failed = answer["outcomes"], 0
        version = tuple(map(int, answer["version"].split(".")[:2]))
        if route == "native" and version < TABLE_VERSION:
            self.not_of_version = {case.name for case in cases
                                   if outcomes[case.name] is not None and route not in case.unmet}
            print(f"torch {answer['version']}: not so there: {', '.join(self.not_of_version) or 'none'}")
        for case in cases:
            found, reason = outcomes[case.name], case.unmet.get(route)
            if case.name in self.not_of_version:
                continue
            if found is not None and reason is None:
                print(f"FAIL: {route}: {case.name} ({case.words}): {found}")
                failed += 1
            elif found is None and reason is not None:
                print(f"FAIL: {route}: {case.name} is met, and said not to be: {reason}")
                failed += 1
        met = sum(found is None for found in outcomes.values())
        print(f"{route}: {met} of {len(cases)} met")
        return failed


class Child:
    """What a case is given: torch, the route, and what cases share."""

    def __init__(self, route):
        faulthandler.enable()
        self.route, self.is_berm = route, route == "subclass"
        self.is_expandable = route == "expandable"
        self.torch = torch_test.load(route)
        from berm import _values
        _values.start(self.torch, "all")
        self.torch.zeros(1, device="cuda")  # CUDA and its context, before anything is counted
        self.torch.cuda.synchronize()

    def settle(self):
        """Drops what nobody has any more, and what libraries keep."""
        gc.collect()
        self.torch.cuda.synchronize()
        self.torch._C._cuda_clearCublasWorkspaces()
        self.torch.cuda.empty_cache()

    def allocated(self):
        cuda = self.torch.cuda
        return [cuda.memory_allocated(device) for device in range(cuda.device_count())]

    def outcome(self, case):
        """None, or why the case is not met."""
        if os.environ.get("BERM_TEST_VERBOSE"):
            print(f"{self.route}: {case.name}", file=sys.stderr, flush=True)
        self.settle()
        before = self.allocated()
        try:
            with contextlib.ExitStack() as stack:
                if not case.on_default:
                    stream = self.torch.cuda.Stream()
                    stack.enter_context(self.torch.cuda.stream(stream))
                case.function(self)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            mine = [frame for frame in traceback.extract_tb(error.__traceback__)
                    if frame.filename.endswith(os.path.basename(sys.argv[0]))]
            place = (mine or [place])[-1]
            if os.environ.get("BERM_TEST_VERBOSE"):
                traceback.print_exc()
            return f"{type(error).__name__}: {str(error)[:300]} (line {place.lineno}: {place.line})"
        self.settle()
        after = self.allocated()
        if after != before and not case.keeps:
            return f"memory in use before {before}, after {after}"
        return None

    @contextlib.contextmanager
    def settings(self, text, after):
        """Allocator settings, for a while."""
        self.torch._C._accelerator_setAllocatorSettings(text)
        try:
            yield
        finally:
            self.torch._C._accelerator_setAllocatorSettings(after)

    @contextlib.contextmanager
    def limited(self, more_mib):
        """Room for this much more than is reserved."""
        cuda = self.torch.cuda
        before = cuda.get_per_process_memory_fraction()
        cuda.empty_cache()
        total = cuda.mem_get_info()[1]
        cuda.set_per_process_memory_fraction((more_mib * MIB + cuda.memory_reserved()) / total)
        try:
            yield
        finally:
            cuda.set_per_process_memory_fraction(before)

    def bytes(self, mib):
        """A tensor of that many MiB; its contents are nobody's."""
        return self.torch.empty(int(mib * MIB), dtype=self.torch.uint8, device="cuda")

    def history(self, *arguments, **named):
        """Records history, for a while."""
        record = self.torch.cuda.memory._record_memory_history

        @contextlib.contextmanager
        def recorded():
            record(*arguments, **named)
            try:
                yield
            finally:
                record(None)
        return recorded()

    @contextlib.contextmanager
    def plain(self):
        """Without values, whose modes add stack frames of their own."""
        from torch.utils._python_dispatch import _disable_current_modes
        with self.torch._C.DisableTorchFunction(), _disable_current_modes():
            yield

    def apart(self, program, route=None, **environment):
        """Runs lines in a process of their own, with `torch` of this route; returns the process."""
        start = f"import torch_test; torch = torch_test.load({route or self.route!r})\n"
        folder = str(pathlib.Path(__file__).resolve().parent)
        more = {"PYTHONPATH": os.pathsep.join((os.environ["PYTHONPATH"], folder)), **environment}
        kept = {name: value for name, value in os.environ.items() if name != "BERM_TEST_ROUTE"}
        return subprocess.run([sys.executable, "-B", "-c", start + program], capture_output=True,
                              text=True, env={**kept, **more}, timeout=120, check=False)


# --- checks --------------------------------------------------------------------------------------


def equal(found, expected, what=""):
    if found != expected:
        raise AssertionError(f"{what} is {found}, expected {expected}")


def check(condition, what):
    if not condition:
        raise AssertionError(what)


@contextlib.contextmanager
def raises(kind, words=""):
    """What runs in it must raise an error of this kind, whose text has these words."""
    try:
        yield
    except kind as error:
        if words not in str(error):
            raise AssertionError(f"{words!r} is not in: {str(error)[:300]}") from error
        return
    raise AssertionError(f"no {kind.__name__} was raised")
