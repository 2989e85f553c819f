# SPDX-License-Identifier: Apache-2.0
"""How berm._values comes to see what a program does: modes of torch in every thread of Python's,
the graphs it captures and replays, and collectives that ask for values."""
import ctypes
import functools
import os
import sys
import threading

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from berm import _values, _values_home, _values_op

_kept = []  # callbacks that C holds


class _Operators(TorchDispatchMode):
    """Every operator of the threads that entered it."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # the wrapper that this saves costs more than the operator; see _hide

    @classmethod
    def ignore_compile_internals(cls):
        """torch.compile works as without it."""
        return True

    def __init__(self, torch, values):
        super().__init__()
        self._values = values
        self._below = torch._C._get_dispatch_mode
        self._fake = torch._C._TorchDispatchModeKey.FAKE

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self._below(self._fake) is not None:  # only shapes are wanted, of tensors without memory
            return func(*args, **kwargs or {})
        if types and self._values.is_foreign(types):
            return NotImplemented
        return self._values.call(self, func, args, kwargs or {})


class _Constructors(TorchFunctionMode):
    """Tensors made from data of Python's, the lists among indices too."""

    def __init__(self, torch, values):
        super().__init__()
        self._torch = torch
        self._values = values
        self._tensor = torch.Tensor
        self._names = frozenset((torch.tensor, torch.as_tensor, torch.asarray,
                                 torch.Tensor.new_tensor))
        self._items = frozenset((torch.Tensor.__getitem__, torch.Tensor.__setitem__))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in self._items and args[0].is_cuda and not self._values.is_off:
            return func(args[0], self._index(args[1]), *args[2:])
        made = func(*args, **kwargs)
        if func in self._names and isinstance(made, self._tensor) and made.is_cuda and \
                not self._values.is_off:
            self._values.made_from_data(func, args, kwargs, made)
        return made

    def _index(self, index):
        """The same with CPU tensors for lists and arrays, which torch would copy to the device
        unseen; a list with anything but numbers in it is what torch takes for a tuple."""
        if isinstance(index, tuple):
            return tuple(self._places(each) for each in index)
        is_list = isinstance(index, list)
        return self._places(index) if not is_list or all(
            isinstance(each, (int, bool)) for each in index) else index

    def _places(self, index):
        is_array = type(index).__module__ == "numpy" and getattr(index, "ndim", 0) > 0
        if not isinstance(index, list) and not is_array:
            return index
        torch = self._torch
        made = torch.as_tensor(index, device="cpu")
        return made if made.dtype in (torch.bool, torch.uint8) else made.long()


def _hide(torch):
    """torch.compile is not to look into these modules."""
    skip = getattr(torch._C._dynamo.eval_frame, "skip_code", None)
    for module in (_values, _values_home, _values_op, sys.modules[__name__]):
        for each in vars(module).values():
            for function in [each, *vars(each).values()] if isinstance(each, type) else [each]:
                code = getattr(function, "__code__", None)
                if skip is not None and code is not None:
                    skip(code)


def _wire_threads(torch, values):
    def enter():
        _Constructors(torch, values).__enter__()
        _Operators(torch, values).__enter__()

    start = threading.Thread.start

    @functools.wraps(start)
    def start_with_modes(thread):
        run = thread.run

        @functools.wraps(run)
        def run_with_modes():
            try:
                with _Constructors(torch, values), _Operators(torch, values):
                    run()
            finally:
                del thread.run

        thread.run = run_with_modes
        start(thread)

    threading.Thread.start = start_with_modes
    enter()


def _wire_graphs(torch, values):
    """The work of a capture is kept, and done again after each replay."""
    graph = torch.cuda.CUDAGraph
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    @functools.wraps(begin)
    def capture_begin(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        values.recording.append([])

    @functools.wraps(end)
    def capture_end(self):
        try:
            end(self)
        finally:
            self._berm_work = values.recording.pop() if values.recording else []

    @functools.wraps(replay)
    def replay_with_work(self):
        replay(self)
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        salt = generator.initial_seed(), generator.get_offset()
        for work in getattr(self, "_berm_work", ()):
            try:
                work.run(salt)
            except (RuntimeError, NotImplementedError) as error:
                values.failed[str(error).split(":", 1)[0]] += 1

    graph.capture_begin, graph.capture_end = capture_begin, capture_end
    graph.replay = replay_with_work


def _wire_printing(torch, values):
    """torch prints a tensor with all modes off."""
    module = torch._tensor_str
    plain = module._str

    @functools.wraps(plain)
    def str_with_values(self, *, tensor_contents=None):
        if tensor_contents is None and not values.is_off and type(self) is torch.Tensor and \
                self.is_cuda and self.layout is torch.strided and not self.is_meta:
            twin = values.read(self)
            if twin is not None:
                with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                    tensor_contents = module._tensor_str(twin, len("tensor("))
        return plain(self, tensor_contents=tensor_contents)

    module._str = str_with_values


def _wire_collectives(values):
    """Small collectives of the NCCL stand-in read and write the values that are kept here."""
    home = values.home
    if not hasattr(home, "read_bytes"):
        return
    try:  # loaded already, if torch needs it
        setter = ctypes.CDLL("libsimcuda_standins.so.0").standin_values_set
    except (OSError, AttributeError):
        return
    read_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)
    write_type = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)

    def read(addr, data, nbytes):
        return int(home.read_bytes(addr, data, nbytes))

    _kept.extend((read_type(read), write_type(home.write_bytes)))
    setter(*_kept[-2:])


def wire(torch, values):
    """Sees everything from now on."""
    _hide(torch)
    _wire_threads(torch, values)
    _wire_graphs(torch, values)
    _wire_printing(torch, values)
    _wire_collectives(values)

    def stop():
        values.is_off = True

    os.register_at_fork(after_in_child=stop)  # a child has no device
