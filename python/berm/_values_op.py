# SPDX-License-Identifier: Apache-2.0
"""What berm._values has to know of an operator, learnt once from its schema, and how the CPU does it."""

# Not run on the host: they move no values, or say what memory is rather than what is in it.
_PASSED = frozenset(("aten::record_stream", "aten::set_", "aten::resize_", "aten::is_pinned",
                     "aten::_pin_memory", "aten::is_same_size", "aten::_has_same_storage_numel"))
# New memory whose contents nobody may rely on: zeros here.
_EMPTY = frozenset(("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty",
                    "aten::new_empty_strided", "aten::_efficientzerotensor"))
# Share their argument's memory though the schema does not say so.
_VIEWS = frozenset(("aten::_unsafe_view", "aten::_reshape_alias", "aten::lift_fresh", "aten::lift"))
# All of the first argument is written, none of it read.
_WHOLE = frozenset(("aten::copy_", "aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_",
                    "aten::random_", "aten::bernoulli_", "aten::exponential_", "aten::cauchy_",
                    "aten::geometric_", "aten::log_normal_"))
# The result depends on what the first argument is, not on its values.
_LIKE = frozenset(f"aten::{name}" for name in (
    "zeros_like ones_like full_like rand_like randn_like randint_like new_zeros new_ones new_full "
    "empty_like new_empty new_empty_strided").split())
_MASKED = frozenset(("aten::index", "aten::index_put", "aten::index_put_",
                     "aten::_index_put_impl_", "aten::_unsafe_index", "aten::_unsafe_index_put"))
_LISTS = ("aten::_foreach_", "aten::_fused_", "aten::_amp_foreach_")
_COLLECTIVES = ("c10d::", "_c10d_functional::", "_dtensor::")
# Made of others that are seen, as those of FSDP2 are.
_COMPOSED = (*_COLLECTIVES, "fsdp::")


class Op:
    """An operator. `written` and `outs` are names of arguments, `fresh` says by result whether it
    is new memory."""
    __slots__ = ("func", "name", "is_passed", "is_view", "is_empty", "is_like", "is_whole",
                 "is_masked", "is_lists", "is_composed", "is_collective", "is_dynamic", "is_random",
                 "has_generator", "positions", "written", "outs", "fresh")

    def __init__(self, torch, func):
        schema = func._schema
        self.func = func
        self.name = name = schema.name
        self.is_passed = name in _PASSED or name.startswith(("prim::", "profiler::"))
        self.is_view = func.is_view or name in _VIEWS
        self.is_empty = name in _EMPTY
        self.is_like = name in _LIKE
        self.is_whole = name in _WHOLE
        self.is_masked = name in _MASKED
        self.is_lists = name.startswith(_LISTS)
        self.is_composed = name.startswith(_COMPOSED)
        self.is_collective = name.startswith(_COLLECTIVES)
        self.is_dynamic = torch.Tag.dynamic_output_shape in func.tags and not self.is_masked
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        arguments = schema.arguments
        self.has_generator = any(each.name == "generator" for each in arguments)
        self.positions = [each.name for each in arguments if not each.kwarg_only]
        self.written = [each.name for each in arguments
                        if each.alias_info is not None and each.alias_info.is_write]
        self.outs = [each.name for each in arguments if each.is_out]
        self.fresh = [each.alias_info is None for each in schema.returns]

    def argument(self, name, args, kwargs):
        """The argument of that name, however it was given; None where it was not."""
        if name in kwargs:
            return kwargs[name]
        at = self.positions.index(name) if name in self.positions else len(args)
        return args[at] if at < len(args) else None


def tensors(torch, value, found):
    """Appends the tensors in nested lists to `found`."""
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for each in value:
            tensors(torch, each, found)
    return found


# --- CUDA operators that the CPU has under another name ------------------------------------------


def _convolution(torch, a, _):
    return torch.ops.aten.convolution.default(a[0], a[1], None, a[3], a[2], a[4], False,
                                              [0] * len(a[2]), a[5])


def _convolution_transpose(torch, a, _):
    return torch.ops.aten.convolution.default(a[0], a[1], None, a[4], a[2], a[5], True, a[3], a[6])


def _batch_norm(torch, a, _):
    return torch.ops.aten.native_batch_norm.default(*a[:8])


def _batch_norm_backward(torch, a, _):
    x, grad, weight, mean, var, saved_mean, saved_var, eps = a[:8]
    return torch.ops.aten.native_batch_norm_backward.default(
        grad, x, weight, mean, var, saved_mean, saved_var, True, eps, [True, True, True])


def _chances(torch, query, key, bias, is_causal, scale):
    """What attention weighs values with, in float32."""
    score = query.float() @ key.float().transpose(-1, -2) * scale
    if is_causal:
        seen = torch.ones(score.shape[-2:], dtype=torch.bool, device="cpu").tril()
        score = score.masked_fill(seen.logical_not(), float("-inf"))
    if bias is not None and bias.numel() > 0:
        score = score + bias.float()
    return torch.softmax(score, -1)


def _spread(tensor, query):
    """Keys or values for every head of the queries (grouped queries)."""
    return tensor.repeat_interleave(query.size(1) // tensor.size(1), 1)


def _attention(torch, query, key, value, bias, is_causal, scale):
    """Attention by its definition. The sums that the device's operators return too are for their
    backward, which is computed anew here."""
    scale = query.size(-1) ** -0.5 if scale is None else scale
    chances = _chances(torch, query, _spread(key, query), bias, is_causal, scale)
    return (chances @ _spread(value, query).float()).to(query.dtype)


def _attention_backward(torch, grad, query, key, value, bias, is_causal, scale):
    scale = query.size(-1) ** -0.5 if scale is None else scale
    keys, values = _spread(key, query).float(), _spread(value, query).float()
    chances = _chances(torch, query, keys, bias, is_causal, scale)
    grad = grad.float()
    of_chances = grad @ values.transpose(-1, -2)
    of_score = chances * (of_chances - (of_chances * chances).sum(-1, keepdim=True)) * scale

    def gather(each, like):
        parts = each.unflatten(1, (like.size(1), each.size(1) // like.size(1)))
        return parts.sum(2).to(like.dtype)

    return ((of_score @ keys).to(query.dtype),
            gather(of_score.transpose(-1, -2) @ query.float(), key),
            gather(chances.transpose(-1, -2) @ grad, value))


def _flash(torch, a, k):
    # query, key, value, dropout_p, is_causal, return_debug_mask, *, scale
    causal = a[4] if len(a) > 4 else False
    return _attention(torch, a[0], a[1], a[2], None, causal, k.get("scale"))


def _biased(torch, a, k):
    # query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, *, scale
    causal = a[6] if len(a) > 6 else False
    return _attention(torch, a[0], a[1], a[2], a[3], causal, k.get("scale"))


def _flash_backward(torch, a, k):
    # grad, query, key, value, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout_p, is_causal
    return _attention_backward(torch, a[0], a[1], a[2], a[3], None, a[11], k.get("scale"))


def _efficient_backward(torch, a, k):
    # grad, query, key, value, attn_bias, out, logsumexp, seed, offset, dropout_p, mask, is_causal
    causal = a[11] if len(a) > 11 else False
    return _attention_backward(torch, a[0], a[1], a[2], a[3], a[4], causal, k.get("scale"))


def _cudnn_backward(torch, a, k):
    # grad, query, key, value, out, logsumexp, seed, offset, attn_bias, cum_q, cum_k, max_q, max_k,
    # dropout_p, is_causal
    return _attention_backward(torch, a[0], a[1], a[2], a[3], a[8], a[14], k.get("scale"))


CPU = {
    "aten::cudnn_convolution": _convolution,
    "aten::cudnn_convolution_transpose": _convolution_transpose,
    "aten::cudnn_batch_norm": _batch_norm,
    "aten::cudnn_batch_norm_backward": _batch_norm_backward,
    "aten::_scaled_dot_product_flash_attention": _flash,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::_scaled_dot_product_efficient_attention": _biased,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten::_scaled_dot_product_cudnn_attention": _biased,
    "aten::_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
}


class Work:
    """One operator to be done on the host: at once, or at each replay of the graph that captured
    it. It holds no device tensor."""
    __slots__ = ("_torch", "_op", "_args", "_kwargs", "_targets", "_seed")

    def __init__(self, torch, op, args, kwargs, home, targets, seed):
        self._torch = torch
        self._op = op
        self._targets = targets  # by tensor of the result: where it goes, or None
        self._seed = seed
        self._args = [self._host(each, home) for each in args]
        self._kwargs = {name: self._host(each, home) for name, each in kwargs.items()
                        if name not in ("pin_memory", "generator")}

    def _host(self, value, home):
        torch = self._torch
        if isinstance(value, torch.Tensor):
            if not value.is_cuda:
                return value
            if home.holds(value):
                return home.host(value)
            return torch.empty(0, dtype=value.dtype, device="cpu")  # only its type matters
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, (list, tuple)):
            return [self._host(each, home) for each in value]
        return value

    def _call(self, salt):
        torch, op = self._torch, self._op
        function = CPU.get(op.name)
        if function is not None:
            return function(torch, self._args, self._kwargs)
        if not op.is_random:
            return op.func(*self._args, **self._kwargs)
        seed = hash((self._seed, salt)) & 0x7FFFFFFFFFFF
        if op.has_generator:
            generator = torch.Generator(device="cpu").manual_seed(seed)
            if "generator" in [each.name for each in op.func._schema.arguments]:
                return op.func(*self._args, **self._kwargs, generator=generator)
        kept = torch.default_generator.get_state()
        try:
            torch.default_generator.manual_seed(seed)
            return op.func(*self._args, **self._kwargs)
        finally:
            torch.default_generator.set_state(kept)

    def run(self, salt=0, is_known=True):
        """Returns what the operator returned; the values are where they belong."""
        torch = self._torch
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.no_grad():
            result = self._call(salt)
            for target, made in zip(self._targets, tensors(torch, result, [])):
                if target is None:
                    continue
                if target.shape != made.shape:
                    raise RuntimeError(f"{self._op.name}: the CPU's result has another shape")
                target.copy_(made)
                if not is_known and target.is_floating_point():
                    target.nan_to_num_(0.0, 0.0, 0.0)
            return result
