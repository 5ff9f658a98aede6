"""The layout of an operator's results, computed on meta tensors: no data, no memory.

Four ways, in this order:

1. the target's rule (``graphmem.targets.results``);
2. torch's meta kernel, called on meta twins of the arguments;
3. FakeTensorMode, which knows operators that have no meta kernel (by decomposition, by
   ``torch.library.register_fake`` and by its own rules);
4. for an operator that none knows: an assumption, stated in the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from graphmem.targets import Call, Layout, ResultRule, layouts
from graphmem.targets.user_rules import operator_rule
from graphmem.trace.hollow import twin

META = torch.device("meta")
_GROUPED_MM = torch.ops.aten._grouped_mm.default
_ROW_BYTES = 16


class NeedsValueError(Exception):
    """The layout of the result depends on values that are not known."""


class NoShapeRuleError(Exception):
    """Neither a meta kernel nor a fake kernel exists."""


def map_tensors(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """``value`` with every tensor replaced; operators nest them in lists at most."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, list):
        return [map_tensors(item, function) for item in value]
    if isinstance(value, tuple):
        return tuple([map_tensors(item, function) for item in value])
    return value


class Shapes:
    """The layouts of operators' results, each computed once.

    A result's layout is a function of the arguments' layouts and of the other arguments,
    so that a model's repeated blocks cost one look-up an operator.

    Args:
        rules: the target's own.
        seen: takes the key of every call and its results.
    """

    def __init__(
        self,
        rules: Mapping[OpOverload, ResultRule],
        seen: list[tuple[Any, Any]] | None = None,
    ) -> None:
        self._rules = rules
        self._seen = seen
        self._found: dict[Any, Any] = {}

    def of(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator's results as nested ``Layout``, for arguments of any device.

        Raises:
            NeedsValueError: if the layout depends on values.
            NoShapeRuleError: if no kernel tells it.
            RuntimeError: and others, as torch raises them for arguments that do not fit.
        """
        key = (func, key_of(args), key_of(kwargs) if kwargs else None)
        try:
            found = self._found.get(key)
        except TypeError:  # an argument that can't be hashed
            return self._compute(func, args, kwargs)
        if found is None:
            found = self._found[key] = self._compute(func, args, kwargs)
        if self._seen is not None:
            self._seen.append((key, found))
        return found

    def _compute(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        user = operator_rule(func._schema.name)
        if user is not None:
            return layouts(_called_on_meta(user.results, args, kwargs))
        rule = self._rules.get(func)
        if rule is None:
            return layouts(_on_meta(func, args, kwargs))
        return rule(Call(layouts(args), kwargs, None))


def key_of(value: Any) -> Any:
    """What tells the layouts and settings of arguments apart, to look up by; tensors by layout."""
    if isinstance(value, Tensor):
        is_strided = value.layout is torch.strided
        return value.size(), value.stride() if is_strided else value.layout, value.dtype
    if isinstance(value, list | tuple):
        return tuple([key_of(item) for item in value])
    if isinstance(value, dict):
        return tuple([(name, key_of(item)) for name, item in value.items()])
    return type(value), value  # 1, 1.0 and True are equal, and promote differently


def of_key(key: Any) -> Any:
    """The arguments that a part of a key of ``Shapes.of`` stands for, as a rule takes them.

    Each tensor has a storage of its own; a result's layout does not depend on that.
    """
    if key and isinstance(key[0], type):
        return key[1]
    if key and isinstance(key[0], torch.Size):
        size, stride, dtype = key
        last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        nbytes = 0 if 0 in size else (last + 1) * dtype.itemsize
        return Layout(tuple(size), stride, dtype, 0, nbytes, -1)
    return [of_key(item) for item in key]


def _on_meta(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator's result on meta tensors."""
    if func is _GROUPED_MM:
        return _grouped_mm(*args, **kwargs)
    try:
        return _called_on_meta(func, args, kwargs)
    except NotImplementedError:
        return _result_of_fake(func, args, kwargs)
    except RuntimeError as error:
        if _asks_for_values(error):
            raise NeedsValueError from error
        if "no fake impl registered" in str(error):  # torch/_library/custom_ops.py
            raise NoShapeRuleError from error
        raise


def _called_on_meta(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What a function gives for meta twins of tensors."""
    meta_args = [map_tensors(a, twin) for a in args]
    meta_kwargs = {key: map_tensors(value, twin) for key, value in kwargs.items()}
    if "device" in meta_kwargs:
        meta_kwargs["device"] = META
    if meta_kwargs.get("pin_memory"):
        meta_kwargs["pin_memory"] = False
    return function(*meta_args, **meta_kwargs)


def _grouped_mm(a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """As torch's own, which refuses every dtype but bf16 (and fp16 on some GPUs).

    The kernels take fp32 too. Rows of a and b have to be multiples of 16 bytes, in whichever of
    the last two dimensions they lie; rows of the result are padded to that.

    Inputs: a [M, K], b [G, K, N] and others, as torch's documentation says.
    Source: torch 2.13, aten/src/ATen/native/GroupedMMUtils.h.
    """
    offs = args[0] if args else kwargs.get("offs")
    halves = [_as_half(t) for t in (a, b)]
    size = _GROUPED_MM(*halves, None if offs is None else twin(offs)).size()
    each = _ROW_BYTES // a.dtype.itemsize
    step = -(-size[-1] // each) * each
    strides = (size[-2] * step, step, 1)[-len(size) :]
    return torch.empty_strided(size, strides, dtype=a.dtype, device=META)


def _as_half(tensor: Tensor) -> Tensor:
    """A bf16 tensor with as many bytes from row to row."""
    scale = tensor.dtype.itemsize // torch.bfloat16.itemsize
    strides = [step if step == 1 else step * scale for step in tensor.stride()]
    return torch.empty_strided(tensor.size(), strides, dtype=torch.bfloat16, device=META)


def _asks_for_values(error: RuntimeError) -> bool:
    """Whether a meta kernel failed for lack of data (``_local_scalar_dense`` on meta)."""
    text = str(error)
    return "cannot be called on meta tensors" in text or "data-dependent" in text


def _result_of_fake(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
    mode = FakeTensorMode()

    def fake(tensor: Tensor) -> Tensor:
        with mode:
            return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)

    fake_args = [map_tensors(a, fake) for a in args]
    fake_kwargs = {key: map_tensors(value, fake) for key, value in kwargs.items()}
    try:
        with mode:
            result = func(*fake_args, **fake_kwargs)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise NeedsValueError from error
    except (UnsupportedOperatorException, NotImplementedError) as error:
        raise NoShapeRuleError from error
    return map_tensors(result, _meta_of_fake)


def _meta_of_fake(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, FakeTensor):
        return twin(tensor)
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=META)


def assumed(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Layouts for an operator without any kernel.

    Each tensor that it returns is taken to be laid out as its largest tensor argument.

    Raises:
        NoShapeRuleError: if it takes no tensor.
    """
    tensors: list[Tensor] = []
    map_tensors(list(args) + list(kwargs.values()), tensors.append)
    if not tensors:
        raise NoShapeRuleError(f"{func} takes no tensor")
    largest = max(tensors, key=lambda t: t.numel() * t.element_size())
    results = [
        [twin(largest)] if "List" in str(r.type) else twin(largest) for r in func._schema.returns
    ]
    return layouts(results[0] if len(results) == 1 else tuple(results))
