# SPDX-License-Identifier: Apache-2.0
"""Live tensors, and what autograd keeps: every tensor that Python knows, and what the graphs that
hang on them have saved for a backward pass. Nothing is computed; saved tensors with hooks of the
program's (offloading, checkpointing) are not unpacked."""
import collections
import time
import warnings

NODES_MAX = 200_000
_attributes = {}  # type of a node -> its _raw_saved_* names

Saved = collections.namedtuple("Saved", "address size node root")


def storage(torch, tensor):
    """(address, bytes) of a tensor's memory on a CUDA device, or None: on the CPU, fake, empty, or a
    tensor class that has no memory of its own."""
    try:
        with torch._C.DisableTorchFunctionSubclass():
            if not tensor.is_cuda:
                return None
            found = tensor.untyped_storage()
            if found.device.type != "cuda":  # a fake tensor
                return None
            address, size = found.data_ptr(), found.nbytes()
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):
        return None
    return (address, size) if address and size else None


def parts(tensor):
    """The tensor, or what a tensor class such as DTensor is made of."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return [tensor]
    try:
        return [part for name in flatten()[0] for part in parts(getattr(tensor, name))]
    except Exception:  # whatever a class of others does
        return [tensor]


def of_class(objects, *classes):
    """Those of these classes (a list of gc.get_objects()), without calling any of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [found for found in objects if issubclass(type(found), classes)]


def tensors(torch, objects, device=None):
    """The tensors among objects that have memory on a CUDA device (or on that one): [(tensor,
    address, bytes)]."""
    found = []
    for tensor in of_class(objects, torch.Tensor):
        memory = storage(torch, tensor)
        if memory is not None and device in (None, tensor.device.index):
            found.append((tensor, *memory))
    return found


def _names(node):
    kind = type(node)
    if kind not in _attributes:
        _attributes[kind] = [name for name in dir(kind) if name.startswith("_raw_saved_")]
    return _attributes[kind]


def _raw(node):
    """The SavedTensors of a node."""
    for name in _names(node):
        try:
            value = getattr(node, name)
        except (RuntimeError, AttributeError):  # freed: its backward pass has run
            continue
        yield from value if isinstance(value, (tuple, list)) else (value,)


def _saved_by(torch, node):
    for raw in _raw(node):
        try:
            if getattr(raw, "unpack_hook", None) is None and isinstance(raw.data, torch.Tensor):
                yield raw.data
        except (RuntimeError, AttributeError):
            continue


def _begin(tensor):
    """The node that made a tensor, or None."""
    try:
        return tensor.grad_fn
    except RuntimeError:  # a view whose base was changed meanwhile
        return None


class Graph:
    """The nodes that lead from these tensors (roots) to their leaves. is_complete: all were seen."""

    def __init__(self, roots, deadline=float("inf")):
        self.is_complete = True
        self._children = {}  # id of a node: (node, ids of the next); nodes are alive, ids their own
        self._begins = [_begin(root) for root in roots]
        waiting = [node for node in self._begins if node is not None]
        while waiting:
            node = waiting.pop()
            if id(node) in self._children:
                continue
            if len(self._children) >= NODES_MAX or time.monotonic() > deadline:
                self.is_complete = False
                return
            following = [edge[0] for edge in node.next_functions if edge[0] is not None]
            self._children[id(node)] = (node, [id(each) for each in following])
            waiting.extend(following)

    def _order(self):
        """Roots that lead to others come first: what they have saved is theirs."""
        inner = {each for _, following in self._children.values() for each in following}
        found = [index for index, node in enumerate(self._begins) if node is not None]
        return sorted(found, key=lambda index: id(self._begins[index]) in inner)

    def saved(self, torch):
        """What the nodes have saved: [Saved]; each with the first of the roots that leads to it."""
        seen, found = set(), {}
        for index in self._order():
            waiting = [id(self._begins[index])]
            while waiting:
                number = waiting.pop()
                if number in seen or number not in self._children:
                    continue
                seen.add(number)
                node, following = self._children[number]
                waiting.extend(following)
                for tensor in _saved_by(torch, node):
                    memory = storage(torch, tensor)
                    if memory is not None:
                        found.setdefault((memory[0], index), Saved(*memory, node.name(), index))
        return list(found.values())
