"""CUDA's autocast on the CPU tensors of a trace.

While ``installed`` is active, every operator that CUDA's autocast casts (see
``autocast_lists``) has CUDA's rule in the place of the CPU's, under the dispatch key of the
CPU's autocast, and the operators that only the CPU's autocast casts pass it by. There they
are reached wherever they are called from, C++ included, above autograd. Which dtype, and
whether autocast is on, is what torch holds for ``"cuda"``; the trace turns the key on and
off with it (``graphmem.trace.autocast``).

Source of the rules: include/ATen/autocast_mode.h, ``WrapFunction_`` and ``promote_type``,
and aten/src/ATen/autocast_mode.cpp, ``cached_cast`` (torch 2.13). The order in which the
inputs are cast, last to first, is that of a C++ call's arguments as GCC evaluates them; the
CPU's own autocast shows it.
"""

from __future__ import annotations

import functools
import math
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch._ops import OpOverload

from graphmem.targets.cuda import rnn
from graphmem.targets.cuda.autocast_lists import Policy, policies
from graphmem.targets.layout import layouts

aten = torch.ops.aten
Kernel = Callable[..., Any]
OnDevice = Callable[[Tensor], bool]

_KEYS = DispatchKeySet(DispatchKey.AutocastCPU) | DispatchKeySet(DispatchKey.AutocastCUDA)
_autocast_dtype = torch.get_autocast_dtype  # torch's own, also while a trace stands in for it


class Casts:
    """Casts of tensors, and the cache of those of weights.

    The casts of fp32 leaves that require a gradient to the dtype of autocast are kept until
    ``clear``, which torch calls where the outermost autocast ends. They are made with
    gradients on, so that one made under ``no_grad`` serves later; under ``inference_mode``
    nothing is kept. Source: aten/src/ATen/autocast_mode.cpp, ``cached_cast``, as of torch
    2.11 (github.com/pytorch/pytorch/pull/165068).

    Args:
        on_device: whether a tensor lies on the GPU; host tensors are not cast.
    """

    def __init__(self, on_device: OnDevice) -> None:
        self._on_device = on_device
        self._cached: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}

    def __len__(self) -> int:
        """The number of casts that are kept."""
        return len(self._cached)

    def clear(self) -> None:
        """Let go of all casts."""
        self._cached.clear()

    def eligible(self, value: object) -> bool:
        """Whether autocast concerns a value: a floating-point tensor on the GPU, no double."""
        return (
            isinstance(value, Tensor)
            and value.is_cpu
            and value.is_floating_point()
            and value.dtype is not torch.float64
            and self._on_device(value)
        )

    def to(self, dtype: torch.dtype, value: Any) -> Any:
        """An argument, tensors in lists included, with what is eligible cast to a dtype."""
        if isinstance(value, list | tuple):
            return [self.to(dtype, item) for item in value]
        if not self.eligible(value) or value.dtype is dtype:
            return value
        return self._kept(dtype, value) if _keeps(dtype, value) else aten.to.dtype(value, dtype)

    def all_to(self, dtype: torch.dtype, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """All arguments, cast from the last to the first."""
        named = {name: self.to(dtype, kwargs[name]) for name in reversed(kwargs)}
        listed = [self.to(dtype, value) for value in reversed(args)]
        return listed[::-1], named

    def _kept(self, dtype: torch.dtype, weight: Tensor) -> Tensor:
        source, cast = self._cached.get(id(weight), (None, None))
        if cast is None or source is None or source() is not weight:
            with torch.enable_grad():
                cast = aten.to.dtype(weight, dtype)
            self._cached[id(weight)] = (weakref.ref(weight), cast)
        return cast


def _keeps(dtype: torch.dtype, tensor: Tensor) -> bool:
    return (
        dtype is _autocast_dtype("cuda")
        and tensor.dtype is torch.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and not tensor._is_view()
        and torch.is_autocast_cache_enabled()
        and not torch.is_inference_mode_enabled()
    )


@contextmanager
def installed(casts: Casts) -> Iterator[None]:
    """CUDA's rules in torch's dispatcher, for as long as the context is active."""
    libraries = {"aten": torch.library.Library("aten", "IMPL")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns once that a kernel is overridden
            for name, kernel in _kernels(casts).items():
                namespace, operator = name.split("::")
                if namespace not in libraries:
                    libraries[namespace] = torch.library.Library(namespace, "IMPL")
                libraries[namespace].impl(operator, kernel, "AutocastCPU", allow_override=True)
        yield
    finally:
        for library in libraries.values():
            library._destroy()
        casts.clear()


def _kernels(casts: Casts) -> dict[str, Kernel]:
    """What stands under the CPU's autocast key during a trace, by the operator's name."""
    made: dict[str, Kernel] = dict.fromkeys(_on_cpu_only(), torch.library.fallthrough_kernel)
    for name, policy in policies().items():
        made[name] = kernel(policy, overload(name), casts)
    for name in torch._C._dispatch_get_all_op_names():
        is_torchs = name.startswith("aten::")
        if not is_torchs and _has(name, "AutocastCUDA") and not _has(name, "AutocastCPU"):
            made[name] = functools.partial(_registered_by_user, overload(name))
    return made


@functools.cache
def _on_cpu_only() -> tuple[str, ...]:
    """The operators of torch that only the CPU's autocast casts."""
    names = torch._C._dispatch_get_all_op_names()
    casts = (n for n in names if n.startswith("aten::") and _has(n, "AutocastCPU"))
    return tuple(name for name in casts if name not in policies())


def _has(operator: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))


@functools.cache
def overload(name: str) -> OpOverload:
    """The operator that the dispatcher calls ``aten::pow.Scalar``."""
    qualified, _, suffix = name.partition(".")
    namespace, packet = qualified.split("::")
    found: OpOverload = getattr(getattr(getattr(torch.ops, namespace), packet), suffix or "default")
    return found


def kernel(policy: Policy, op: OpOverload, casts: Casts) -> Kernel:
    """The kernel of one operator under autocast: cast as the policy says, then call it.

    The call goes through the dispatcher from the top, with autocast off.
    """
    rule = _RULES[policy]

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            return rule(op, casts, args, kwargs)

    return run


Rule = Callable[[OpOverload, Casts, tuple[Any, ...], dict[str, Any]], Any]


def _lower_precision(op: OpOverload, casts: Casts, args: Any, kwargs: Any) -> Any:
    cast, named = casts.all_to(_autocast_dtype("cuda"), args, kwargs)
    return op(*cast, **named)


def _fp32(op: OpOverload, casts: Casts, args: Any, kwargs: Any) -> Any:
    cast, named = casts.all_to(torch.float32, args, kwargs)
    return op(*cast, **named)


def _fp32_set_opt_dtype(op: OpOverload, casts: Casts, args: Any, kwargs: Any) -> Any:
    """The kernel itself converts while it reads: no copy, if it can."""
    position = next(i for i, a in enumerate(op._schema.arguments) if a.name == "dtype")
    given = args[position] if position < len(args) else kwargs.get("dtype")
    if given is not None or not casts.eligible(args[0]):
        return op(*args, **kwargs)
    return op(*args[:position], **{**kwargs, "dtype": torch.float32})


def _fp32_append_dtype(op: OpOverload, casts: Casts, args: Any, kwargs: Any) -> Any:
    """``norm(x, p)`` and ``norm(x, p, dim, keepdim)`` as their overloads with a dtype."""
    given = {a.name: value for a, value in zip(op._schema.arguments, args, strict=False)} | kwargs
    x, p = given["self"], given.get("p", 2)
    dtype = torch.float32 if casts.eligible(x) else x.dtype
    if "dim" not in given:
        return aten.norm.ScalarOpt_dtype(x, p, dtype=dtype)
    keepdim = given.get("keepdim", False)
    return aten.norm.ScalarOpt_dim_dtype(x, p, given["dim"], keepdim, dtype=dtype)


def _promote(op: OpOverload, casts: Casts, args: Any, kwargs: Any) -> Any:
    widest = _autocast_dtype("cuda")
    for tensor in _tensors((*args, *kwargs.values())):
        if casts.eligible(tensor):
            widest = _wider(widest, tensor.dtype)
    cast, named = casts.all_to(widest, args, kwargs)
    return op(*cast, **named)


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _wider(current: torch.dtype, other: torch.dtype) -> torch.dtype:
    """Fp32 before the dtype of autocast; another one is an error, as it is in torch."""
    if torch.float32 in (current, other):
        return torch.float32
    if current is not other:
        raise RuntimeError(
            f"Unexpected floating ScalarType in at::autocast::prioritize: {other} under autocast "
            f"to {current}"
        )
    return current


def _banned(op: OpOverload, casts: Casts, args: Any, kwargs: Any) -> Any:
    raise RuntimeError(
        "F.binary_cross_entropy and nn.BCELoss are unsafe to autocast: CUDA refuses them. Use "
        "binary_cross_entropy_with_logits or nn.BCEWithLogitsLoss, without the sigmoid before"
    )


def _cudnn_rnn(op: OpOverload, casts: Casts, args: Any, kwargs: Any) -> Any:
    """fp16 copies of all weights, on one flat buffer that is cuDNN's ``weight_buf``.

    Always fp16, whatever the dtype of autocast is. Inputs: input, weights, weight_stride0,
    weight_buf, hx, cx, ... Source: aten/src/ATen/cudnn/AutocastRNN.cpp,
    ``_cudnn_rnn_cast_reflatten``; aten/src/ATen/native/cudnn/RNN.cpp,
    ``copy_weights_to_flat_buf_views``.
    """
    x, weights, stride, buffer, hx, cx, *rest = args
    decides = weights[0] if buffer is None else buffer
    if casts.eligible(decides) and decides.dtype is not torch.float16:
        weights, buffer = _flat(args, torch.float16)
    cx, hx, x = (casts.to(torch.float16, value) for value in (cx, hx, x))
    return op(x, weights, stride, buffer, hx, cx, *rest, **kwargs)


def _flat(args: Sequence[Any], dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    """Copies of the weights among the arguments, each at its place on a buffer, and the buffer."""
    given = rnn.Arguments(*layouts(tuple(args)))
    layers = given.layers()
    has_biases = given.weight_stride0 > (3 if given.proj_size else 2)
    offsets = rnn.weight_offsets(layers, biases=has_biases)
    buffer = torch.zeros(layers.weight_elements(), dtype=dtype)
    copies = []
    for weight, offset in zip(args[1], offsets, strict=True):
        place = torch.empty(0, dtype=dtype)
        place.set_(buffer.untyped_storage(), offset, weight.shape, _dense(weight.shape))
        copies.append(place.copy_(weight))
    return copies, buffer


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _registered_by_user(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """A custom operator with a rule of its own, from ``torch.library.register_autocast``."""
    with torch._C._ExcludeDispatchKeyGuard(_KEYS):
        return op._op_dk(DispatchKey.AutocastCUDA, *args, **kwargs)


_RULES: dict[Policy, Rule] = {
    Policy.LOWER_PRECISION: _lower_precision,
    Policy.FP32: _fp32,
    Policy.FP32_SET_OPT_DTYPE: _fp32_set_opt_dtype,
    Policy.FP32_APPEND_DTYPE: _fp32_append_dtype,
    Policy.PROMOTE: _promote,
    Policy.BANNED: _banned,
    Policy.CUDNN_RNN: _cudnn_rnn,
}
