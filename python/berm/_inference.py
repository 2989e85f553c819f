# SPDX-License-Identifier: Apache-2.0
"""Whether inference is inference: berm.torch.check()."""
import collections

import torch

from berm import _graph, _names

_SHOWN = 3  # names in a line
_NORMS = ("norm",)  # classes whose weights are kept in a wider type on purpose

Finding = collections.namedtuple("Finding", "kind text")


def _listed(names):
    names = [name or "(the model itself)" for name in names]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more"
                                        if len(names) > _SHOWN else "")


def _count(number, noun):
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _training(model):
    names = [name for name, module in model.named_modules() if module.training]
    if names:
        acts = [name for name, module in model.named_modules() if module.training and
                type(module).__name__.startswith(("Dropout", "BatchNorm", "AlphaDropout", "RReLU"))]
        yield Finding("train mode", f"{_count(len(names), 'module')} in train mode ({_listed(acts or names)}):"
                      " dropout and batch statistics are active; call model.eval()")


def _gradients(model):
    wanting = [name for name, each in model.named_parameters() if each.requires_grad]
    if wanting and torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        yield Finding("gradients recorded", f"{_count(len(wanting), 'parameter')} with requires_grad "
                      f"({_listed(wanting)}), which are recorded here: each output keeps the "
                      "activations that made it; serve under torch.inference_mode()")
    held = [(name, each.grad) for name, each in model.named_parameters() if each.grad is not None]
    if held:
        size = sum(grad.numel() * grad.element_size() for _, grad in held)
        yield Finding("gradients held", f"{_count(len(held), 'parameter')} with a .grad ({size} bytes): "
                      "model.zero_grad(set_to_none=True) drops them")


def _outputs(model, inputs):
    """Runs the model once; the graph that hangs on what it returns."""
    found = model(*inputs) if isinstance(inputs, (tuple, list)) else \
        model(**inputs) if isinstance(inputs, dict) else model(inputs)
    level = [found]
    for _ in range(4):
        for each in level:
            if isinstance(each, torch.Tensor) and each.grad_fn is not None:
                yield Finding("graph in output", f"what the model returns has a graph "
                              f"({each.grad_fn.name()}): whoever keeps it keeps the activations; "
                              "serve under torch.inference_mode()")
                return
        level = [part for each in level for part in
                 (each.values() if isinstance(each, dict) else
                  each if isinstance(each, (list, tuple)) else ())]


def _dtypes(model):
    by_dtype = collections.defaultdict(list)
    for name, module in model.named_modules():
        for own, each in module.named_parameters(recurse=False):
            if each.is_floating_point():
                is_norm = any(word in type(module).__name__.lower() for word in _NORMS)
                by_dtype[each.dtype].append((f"{name}.{own}" if name else own, is_norm,
                                             each.numel() * each.element_size()))
    if len(by_dtype) < 2:
        return
    main = max(by_dtype, key=lambda dtype: sum(size for *_, size in by_dtype[dtype]))
    for dtype, members in by_dtype.items():
        names = [name for name, is_norm, _ in members if not is_norm]
        if dtype != main and names:
            yield Finding("mixed dtypes", f"{_count(len(names), 'parameter')} of {dtype} in a model of {main} "
                          f"({_listed(names)}): results are widened, with copies; model.to(dtype=...)")


def _devices(model):
    by_device = collections.defaultdict(list)
    for name, each in [*model.named_parameters(), *model.named_buffers()]:
        by_device[each.device].append(name)
    if len({device for device in by_device if device.type == "cpu"}) and len(by_device) > 1:
        names = by_device[torch.device("cpu")]
        yield Finding("mixed devices", f"{_count(len(names), 'parameter or buffer')} on the CPU "
                      f"({_listed(names)}), the others are not: model.to(device)")


def _hooks(model):
    """Forward hooks that hold tensors, or lists of tensors."""
    for name, module in model.named_modules():
        for table in ("_forward_hooks", "_forward_pre_hooks"):
            for hook in list(getattr(module, table, {}).values()):
                held = _held(hook)
                if held:
                    yield Finding("hook holds tensors", f"a hook of {name or 'the model'} "
                                  f"({_names.of_callable(hook)}) holds {_count(held, 'tensor')}")


def _held(hook):
    """How many tensors a function's closure, defaults and arguments hold."""
    values = [cell.cell_contents for cell in getattr(hook, "__closure__", None) or ()
              if cell != type(cell)()]
    values += list(getattr(hook, "__defaults__", None) or ())
    values += list(getattr(hook, "args", ()) or ()) if not isinstance(hook, torch.nn.Module) else []
    count = 0
    for value in values:
        for each in value.values() if isinstance(value, dict) else \
                value if isinstance(value, (list, tuple)) else (value,):
            count += isinstance(each, torch.Tensor) and not isinstance(each, torch.nn.Parameter)
    return count


def _settings():
    if torch.backends.cudnn.benchmark:
        yield Finding("cudnn.benchmark", "torch.backends.cudnn.benchmark tries every algorithm for "
                      "each new shape, with the largest workspaces: turn it off where shapes vary")
    if torch.is_anomaly_enabled():
        yield Finding("anomaly mode", "autograd's anomaly mode is on: every operator keeps a stack")


def _optimizers(model):
    import gc
    own = {id(each) for each in model.parameters()}
    for optimizer in _graph.of_class(gc.get_objects(), torch.optim.Optimizer):
        state = vars(optimizer).get("state", {})
        size = sum(value.numel() * value.element_size() for key, values in list(state.items())
                   if id(key) in own and isinstance(values, dict)
                   for value in list(values.values()) if isinstance(value, torch.Tensor))
        if size:
            yield Finding("optimizer state", f"a {type(optimizer).__name__} lives, and keeps {size} "
                          "bytes for this model's parameters: drop it")


class Findings(list):
    """What check() found; prints itself. Empty: inference is inference."""

    def __str__(self):
        return "\n".join(f"{found.kind}: {found.text}" for found in self) or "no findings"

    @property
    def kinds(self):
        """The kinds that were found, once each."""
        return list(dict.fromkeys(found.kind for found in self))


def check(model, inputs=None):
    """Whether inference with this model is inference: call it where requests are served, in the same
    context. Returns Findings, a list of Finding(kind, text), empty where all is right. Kinds: "train
    mode", "gradients recorded", "gradients held", "graph in output" (only with inputs), "mixed
    dtypes" (weights of norms apart, which are often wider on purpose), "mixed devices", "hook holds
    tensors", "cudnn.benchmark", "anomaly mode", "optimizer state".

    inputs  a tensor, or positional (tuple, list) or named (dict) inputs: the model is run once

    Changes nothing; works on any device, and without CUDA."""
    found = Findings()
    for each in (_training(model), _gradients(model), _dtypes(model), _devices(model), _hooks(model),
                 _settings(), _optimizers(model)):
        found.extend(each)
    if inputs is not None:
        found.extend(_outputs(model, inputs))
    return found
