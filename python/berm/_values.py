# SPDX-License-Identifier: Apache-2.0
"""Values on a simulated device, whose kernels compute nothing.

`small` keeps the values of small tensors on the host (_values_home.Mirror), and does every operator
that has small tensors only there too: what a program decides by them is right. What came from large
tensors is not known; it reads as zeros, and each time the host reads such a value is counted, with
the program's line. `all` does every operator on the CPU, over the device's own memory (Memory).

Operators are seen by a dispatch mode. Autograd's threads take it over from the thread that called
backward; Python's threads enter it when they start. An operator is done on the host right after it
was launched, so in the order of launches: what races on the device does not race here."""
import collections
import os
import sys

from berm._values_home import Memory, Mirror, Unreachable
from berm._values_op import Op, Work, tensors

_PLACES_MAX = 1000
_OWN = os.path.dirname(os.path.realpath(__file__)) + os.sep
_started = None


def _place():
    """The innermost line of the program, of this thread."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not (name.startswith((_OWN, "<")) or f"{os.sep}torch{os.sep}" in name):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "(torch)"


class Values:
    """The state of one process. Counters may lose a count between threads."""

    def __init__(self, torch, kind):
        self.torch = torch
        self.home = Memory(torch) if kind == "all" else Mirror(torch)
        self.is_off = False
        self.done = self.known_reads = self.unknown_reads = self.unknown_read_bytes = 0
        self.unknown_sizes = 0
        self.places = collections.Counter()  # of unknown reads
        self.failed = collections.Counter()  # by operator: the CPU could not do it
        self.recording = []  # lists of Work, of the captures that are under way
        self._ops = {}
        self._disabled = torch._C._disabled_torch_dispatch_impl
        self._cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)

    # --- one operator --------------------------------------------------------------------------

    def is_foreign(self, types):
        """Whether a tensor class with a dispatch of its own takes part: its turn is first."""
        return any(each.__torch_dispatch__ is not self._disabled for each in types)

    def call(self, mode, func, args, kwargs):
        """Runs the operator on the device, and on the host."""
        op = self._ops.get(func)
        if op is None:
            op = self._ops[func] = Op(self.torch, func)
        if op.is_view or op.is_passed or self.is_off:
            return func(*args, **kwargs)
        inputs = tensors(self.torch, args, [])
        for each in kwargs.values():
            tensors(self.torch, each, inputs)
        cuda = [each for each in inputs if each.is_cuda]
        if not cuda and not self._makes_cuda(kwargs):
            return func(*args, **kwargs)
        if op.is_composed:  # what is done inside is looked at
            with mode:
                result = func.redispatch(self._cuda, *args, **kwargs)
            if op.is_collective:
                self._end_collective(op)
            return result
        if any(each.layout is not self.torch.strided for each in inputs):
            return func(*args, **kwargs)
        try:
            return self._call_dense(op, args, kwargs, inputs, cuda)
        except Unreachable:
            return func(*args, **kwargs)

    def _end_collective(self, op):
        """In device memory the result is there when the device is done."""
        if isinstance(self.home, Memory) and not op.name.startswith(("c10d::recv", "c10d::send")):
            self.torch.cuda.synchronize()

    def _makes_cuda(self, kwargs):
        device = kwargs.get("device")
        return device is not None and self.torch.device(device).type == "cuda"

    def _call_dense(self, op, args, kwargs, inputs, cuda):
        if op.name.startswith("aten::_to_sparse") and isinstance(self.home, Memory):
            raise NotImplementedError("berm: sparse tensors are not computed with --values all "
                                      f"({op.name}): use --values small")
        if op.is_masked and len(args) > 1:
            args = self._without_masks(op, args)
            if args is None:
                return inputs[0] if op.written else inputs[0].clone()
            inputs = tensors(self.torch, args, [])
            cuda = [each for each in inputs if each.is_cuda]
        if op.is_dynamic:
            made = self._call_dynamic(op, args, kwargs, cuda)
            if made is not None:
                return made
        try:
            result = op.func(*args, **kwargs)
        except RuntimeError as error:
            # A solver that looks at what the kernels before it should have computed.
            if not isinstance(self.home, Memory) or type(error) is not RuntimeError or op.written:
                raise
            made = self._call_anew(op, args, kwargs, cuda)
            if made is self:
                raise
            return made
        if op.is_lists:
            self._after_lists(op, args, kwargs, result)
            return result
        return self._after(op, args, kwargs, inputs, cuda, result)

    def _seed(self, op, kwargs, cuda):
        if not op.is_random:
            return None
        device = cuda[0].device.index if cuda else self.torch.cuda.current_device()
        generator = kwargs.get("generator") or self.torch.cuda.default_generators[device]
        try:
            return generator.initial_seed(), generator.get_offset()
        except RuntimeError:  # while a graph is captured: by the operator's place in it
            return generator.initial_seed(), len(self.recording[-1]) if self.recording else 0

    def _is_capturing(self):
        return bool(self.recording) and self.torch.cuda.is_current_stream_capturing()

    def _do(self, op, args, kwargs, cuda, targets, is_known):
        """(whether it was done, what the CPU returned)."""
        try:
            work = Work(self.torch, op, args, kwargs, self.home, targets,
                        self._seed(op, kwargs, cuda))
            if self._is_capturing():
                self.recording[-1].append(work)
                return True, None
            result = work.run(is_known=is_known)
        except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError) as error:
            if is_known:
                self.failed[op.name] += 1
            if os.environ.get("BERM_VALUES_LOG"):
                print(f"berm: {op.name} on the CPU: {str(error)[:160]}", file=sys.stderr)
            return False, None
        self.done += 1
        return True, result

    def _after(self, op, args, kwargs, inputs, cuda, result):
        home = self.home
        made = tensors(self.torch, result, [])
        if any([each.layout is not self.torch.strided for each in made]):
            return result
        fresh = [] if not any(op.fresh) else made
        written = [each for name in op.written
                   for each in tensors(self.torch, op.argument(name, args, kwargs), [])]
        held = [each for each in fresh if each.is_cuda and home.holds(each)]
        changed = [each for each in written if each.is_cuda and home.holds(each)]
        # what a random operator has on the host are its seeds
        is_read = bool(cuda) and (
            not made and result is not None and not isinstance(result, (list, tuple)) or
            not op.is_random and any([not each.is_cuda for each in fresh]) or
            any([not each.is_cuda for each in written]))
        if not held and not changed and not is_read:
            return result
        if op.is_empty:
            for each in held:
                home.fresh(each, True)
            return result
        overwritten = written[:1] if op.is_whole else [
            each for name in op.outs
            for each in tensors(self.torch, op.argument(name, args, kwargs), [])]
        reads = [] if op.is_like else [
            each for each in cuda if not any(each is other for other in overwritten)]
        is_done = all(home.holds(each) for each in reads)
        is_known = is_done and all(home.is_known(each) for each in reads)
        # What is not known reads as zeros, and so does what is made of it; but places and choices
        # that follow from zeros are worked out, so that they are ones that could be.
        back = result
        if is_done and not is_known and not is_read and \
                all(each.is_floating_point() for each in held + changed):
            is_done = False  # zeros would be made of zeros
        if is_done:
            # of an aliased result (written in place) nothing is to be copied
            targets = [self._target(each) if fresh else None for each in made]
            is_done, value = self._do(op, args, kwargs, cuda, targets, is_known)
            is_known = is_known and is_done
            if is_done and isinstance(value, (bool, int, float, complex)):
                back = value
        for each in held:
            home.fresh(each, is_known)
        for each in changed:
            home.wrote(each, is_known, op.is_whole or any(each is other for other in overwritten))
        if is_read:
            self._note_read(reads, is_known)
        return back

    def _target(self, tensor):
        if not tensor.is_cuda:
            return tensor
        return self.home.host(tensor) if self.home.holds(tensor) else None

    def _note_read(self, reads, is_known):
        if is_known:
            self.known_reads += 1
            return
        self.unknown_reads += 1
        self.unknown_read_bytes += sum(each.numel() * each.element_size() for each in reads)
        place = _place()
        if place in self.places or len(self.places) < _PLACES_MAX:
            self.places[place] += 1

    # --- operators whose result's size is a value ------------------------------------------------

    def _new(self, made, device, is_known):
        """A device tensor with the values of a CPU tensor."""
        tensor = self.torch.empty(made.shape, dtype=made.dtype, device=device)
        if self.home.holds(tensor):
            self.home.fresh(tensor, is_known)
            self.home.host(tensor).copy_(made)
        return tensor

    def _call_dynamic(self, op, args, kwargs, cuda):
        """The result, made from what the CPU says; None where that is not known."""
        if not all(self.home.holds(each) for each in cuda) or self._is_capturing():
            self.unknown_sizes += 1
            self._note_read(cuda, False)
            return None
        is_known = all(self.home.is_known(each) for each in cuda)
        is_done, value = self._do(op, args, kwargs, cuda, (), is_known)
        if not is_done:
            return None
        self.unknown_sizes += not is_known
        self._note_read(cuda, is_known)
        device = cuda[0].device
        with self.torch._C.DisableTorchFunction():
            self.torch.cuda.current_stream(device).synchronize()  # as the real one waits
            if isinstance(value, self.torch.Tensor):
                return self._new(value, device, is_known)
            return tuple(self._new(each, device, is_known) for each in value)

    def _call_anew(self, op, args, kwargs, cuda):
        """What the CPU makes of an operator that fails on the device; self where it fails too."""
        if op.fresh:
            made = self._call_dynamic(op, args, kwargs, cuda)
            return self if made is None else made
        is_done, _ = self._do(op, args, kwargs, cuda, (), True)
        return None if is_done else self

    def _without_masks(self, op, args):
        """The same arguments with numbers of places instead of masks, as the device itself would
        find them; None where they cannot be known and a write is to be left out."""
        torch = self.torch
        indices = []
        for each in args[1]:
            if each is None or each.dtype not in (torch.bool, torch.uint8) or not each.is_cuda:
                indices.append(each)
                continue
            if not self.home.holds(each) or self._is_capturing():
                self.unknown_sizes += 1
                self._note_read([each], False)
                return None if len(args) > 2 else args
            is_known = self.home.is_known(each)
            self.unknown_sizes += not is_known
            self._note_read([each], is_known)
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                places = self.home.host(each).nonzero()
            with torch._C.DisableTorchFunction():
                indices += [self._new(column, each.device, is_known)
                            for column in places.unbind(1)]
        return (args[0], indices, *args[2:])

    # --- operators over lists, whose elements have nothing to do with each other ----------------

    def _after_lists(self, op, args, kwargs, result):
        torch, home = self.torch, self.home
        made = tensors(torch, result, [])
        count = max([len(each) for each in args if isinstance(each, (list, tuple))], default=0)
        lists = [at for at, each in enumerate(args) if isinstance(each, (list, tuple)) and
                 len(each) == count and count > 0]
        others = [each for each in [*args, *kwargs.values()] if isinstance(each, torch.Tensor)]
        is_usable = all(not each.is_cuda or home.holds(each) and home.is_known(each)
                        for each in others)
        chosen = [i for i in range(count) if is_usable and all(
            not isinstance(args[at][i], torch.Tensor) or not args[at][i].is_cuda or
            home.holds(args[at][i]) and home.is_known(args[at][i]) for at in lists)]
        is_done = False
        if chosen:
            part = [[each[i] for i in chosen] if at in lists else each
                    for at, each in enumerate(args)]
            cuda = [each for each in tensors(torch, part, []) if each.is_cuda]
            targets = [self._target(made[i]) for i in chosen] if made else ()
            is_done, _ = self._do(op, part, kwargs, cuda, targets, True)
        done = set(chosen) if is_done else ()
        for name in op.written:
            value = op.argument(name, args, kwargs)
            for i, each in enumerate([value] if isinstance(value, torch.Tensor) else value or ()):
                if i in done or not each.is_cuda or not home.holds(each):
                    continue
                home.wrote(each, False, False)
        for i, each in enumerate(made):
            if each.is_cuda and home.holds(each):
                home.fresh(each, i in done)

    # --- what is made below the dispatcher -------------------------------------------------------

    def made_from_data(self, func, args, kwargs, made):
        """torch.tensor(data, device="cuda") and the like: their copy to the device is not seen."""
        torch, home = self.torch, self.home
        data = kwargs.get("data", args[-1] if args else None)
        with torch._C._DisableTorchDispatch():
            if not home.holds(made):
                return
            if isinstance(data, torch.Tensor):
                if data.is_cuda and (not home.holds(data) or
                                     home.host(data).data_ptr() == home.host(made).data_ptr()):
                    return
                twin = home.host(data) if data.is_cuda else data
            else:
                own = {**kwargs, "device": "cpu"}
                own.pop("requires_grad", None)
                own.pop("pin_memory", None)
                twin = func(*args, **own)
            home.fresh(made, True)
            with torch.no_grad():
                home.host(made).copy_(twin)

    def read(self, tensor):
        """A CPU tensor with the values, counted as a read; None where they are not kept."""
        try:
            is_held = self.home.holds(tensor)
            self._note_read([tensor], is_held and self.home.is_known(tensor))
            return self.home.host(tensor) if is_held else None
        except Unreachable:
            return None

    def counters(self):
        """What was done, and how much of what the program read was not known."""
        return {"operators": self.done, "known_reads": self.known_reads,
                "unknown_reads": self.unknown_reads,
                "unknown_read_bytes": self.unknown_read_bytes,
                "unknown_sizes": self.unknown_sizes,
                "unknown_read_lines": self.places.most_common(12),
                "not_on_cpu": self.failed.most_common(12)}


def start(torch, kind):
    """Begins, for all of the process. `kind`: "small" or "all" (which needs a device whose memory
    has contents: it is asked for here, before CUDA is initialised). Returns the Values."""
    global _started
    if kind not in ("small", "all"):
        raise ValueError(f"values: {kind!r} is neither small nor all")
    if kind == "all":
        os.environ.update(SIMCUDA_BACKED="1", SIMCUDA_ACTS_AT_LAUNCH="1")
    from berm import _values_wiring
    _started = Values(torch, kind)
    _values_wiring.wire(torch, _started)
    return _started


def counters():
    """Values.counters() of what was started; {} where nothing was."""
    return _started.counters() if _started is not None else {}
