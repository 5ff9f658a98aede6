"""What an operator's schema says: what it views, writes and returns. Read once per operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

# Operators whose schema promises a fresh result, although their kernels return a view:
# aten/src/ATen/native/native_functions.yaml marks them so that autograd does not track
# the view (matmul's _unsafe_view), and TensorShape.cpp implements them by views. Those of
# _c10d_functional give their argument back: torch/csrc/distributed/c10d/Functional.cpp.
_SECRET_VIEWS = frozenset(
    {
        "aten::_unsafe_view",
        "aten::unsafe_split",
        "aten::unsafe_split_with_sizes",
        "aten::unsafe_chunk",
        "_c10d_functional::wait_tensor",
        "_c10d_functional::_wrap_tensor_autograd",
    }
)

# Operators that set a tensor's storage and touch no data.
_STORAGE_SETTERS = frozenset({"aten::set_", "aten::set_data"})

_VIEWS = _SECRET_VIEWS | _STORAGE_SETTERS

# In-place views whose new size may need memory.
_RESIZES = frozenset({"aten::resize_", "aten::resize_as_", "aten::_resize_output_"})

_UNINITIALISED = frozenset(
    {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"}
    | {"aten::new_empty_strided", "aten::empty_permuted", "aten::_efficientzerotensor"}
)

# Operators that take a tensor for its size, dtype and device alone.
_SHAPED_LIKE = frozenset(
    {"aten::zeros_like", "aten::ones_like", "aten::full_like"}
    | {"aten::new_zeros", "aten::new_ones", "aten::new_full"}
)

# In-place operators whose result does not depend on what stood there.
_FILLS = frozenset(
    {"aten::fill_", "aten::zero_", "aten::copy_", "aten::uniform_", "aten::normal_"}
    | {"aten::random_", "aten::bernoulli_", "aten::exponential_", "aten::log_normal_"}
    | {"aten::cauchy_", "aten::geometric_"}
)


# Parts of the names of operators that make tensors which are not plain.
_UNUSUAL = (
    *("_sparse_coo_tensor", "sparse_compressed_tensor", "_nested_tensor"),
    "quantize_per_tensor",
)

# Operators about operators: the profiler's ranges, which torch.optim opens in every step.
_BOOKKEEPING = frozenset({"profiler"})

# Operators that only call others, from Python: their kernels are functions of torch's own FSDP.
_IN_PYTHON = frozenset({"fsdp"})


@dataclass(frozen=True, slots=True)
class Operator:
    """The facts of one operator that the recorder needs.

    ``written`` are positions of arguments that are written. ``returns_written`` gives, for
    each return, the position of the argument that is returned, or None for a fresh result.
    ``fills`` says that the first argument is written without being read, ``ignores_values`` that
    only its layout is. ``is_unusual`` are collectives, and what makes sparse, nested or quantized
    tensors.
    """

    name: str
    is_view: bool
    written: tuple[int, ...]
    returns_written: tuple[int | None, ...]
    is_composite: bool
    needs_values: bool
    is_uninitialised: bool
    fills: bool
    ignores_values: bool
    is_bookkeeping: bool
    is_in_python: bool
    is_unusual: bool


@dataclass(frozen=True, slots=True)
class Dispatched:
    """One call of an operator, as it arrives from the dispatcher.

    ``operator`` is what the operator's schema says.
    """

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    operator: Operator

    @classmethod
    def of(cls, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Dispatched:
        """The call of an operator with these arguments."""
        return cls(func, args, kwargs, describe(func))

    def as_call_of(self, func: OpOverload) -> Dispatched:
        """Another operator called with the same arguments."""
        return Dispatched.of(func, self.args, self.kwargs)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """All arguments, by position and by name."""
        return (self.args, self.kwargs)

    def run(self) -> Any:
        """Call torch's own kernel."""
        return self.func(*self.args, **self.kwargs)

    def argument(self, position: int) -> Any:
        """The argument at a position of the schema, however it was given."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(self.func._schema.arguments[position].name)


# By id: an OpOverload's own hash is computed in Python, and this is asked a dozen times a call.
_CACHE: dict[int, tuple[OpOverload, Operator]] = {}


def describe(func: OpOverload) -> Operator:
    """The facts of an operator, from its schema and its dispatch table."""
    found = _CACHE.get(id(func))
    if found is None:
        found = _CACHE[id(func)] = (func, _read(func))
    return found[1]


def _read(func: OpOverload) -> Operator:
    schema = func._schema
    written = [
        (position, argument)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    tags = func.tags
    return Operator(
        name=str(func).removesuffix(".default"),
        is_view=func.is_view or schema.name in _VIEWS or _only_relabels(func),
        written=tuple(position for position, _ in written),
        returns_written=tuple(_returned_argument(r, written) for r in schema.returns),
        is_composite=_is_composite(func),
        needs_values=torch.Tag.data_dependent_output in tags
        or torch.Tag.dynamic_output_shape in tags,
        is_uninitialised=schema.name in _UNINITIALISED,
        fills=schema.name in _FILLS,
        ignores_values=schema.name in _SHAPED_LIKE,
        is_bookkeeping=func.namespace in _BOOKKEEPING,
        is_in_python=func.namespace in _IN_PYTHON,
        is_unusual=func.namespace in ("c10d", "quantized")
        or any(word in schema.name for word in _UNUSUAL),
    )


def _only_relabels(func: OpOverload) -> bool:
    """Whether an operator changes a tensor's size and stride in place, as ``transpose_`` does."""
    return torch.Tag.inplace_view in func.tags and func._schema.name not in _RESIZES


def _returned_argument(returned: Any, written: list[tuple[int, Any]]) -> int | None:
    if returned.alias_info is None or not returned.alias_info.is_write:
        return None
    names = returned.alias_info.before_set
    for position, argument in written:
        if argument.alias_info.before_set & names:
            return position
    return None


def _is_composite(func: OpOverload) -> bool:
    """Whether the dispatcher runs it as a composition of other operators.

    ``silu_backward`` and ``mish_backward`` have a composition for devices without a kernel,
    and kernels for the CPU and for CUDA.
    """
    name = func.name()
    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
    )
