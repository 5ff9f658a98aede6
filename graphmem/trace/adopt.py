"""Adoption: the user's tensors are replaced by hollow ones for the time of a trace.

Every module's parameters, buffers and other tensor attributes are exchanged for hollow
stand-ins with the same layout and the same sharing (tied weights, views of one flat
storage), wherever the originals live: CPU, CUDA or meta. The originals are never touched;
``restore`` puts them back, with every attribute of every module as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass

from graphmem.sources.onnx.values import is_constant
from graphmem.trace import known, sparse
from graphmem.trace.adapters.marks import keeps_dtype
from graphmem.trace.contents import attributes_of, put_back
from graphmem.trace.hollow import hollow_storage, on_storage
from graphmem.trace.layouts import channels_last


class StandIns:
    """Hollow stand-ins for real tensors, one for each, sharing storages as they do.

    Small tensors that have values keep them: the stand-in is a real copy.
    """

    def __init__(self, dtype: torch.dtype | None = None, *, channels_last: bool = False) -> None:
        self._dtype = dtype
        self._channels_last = channels_last
        # Weak: a gradient's or a state's stand-in must die when the step lets go of it.
        self._tensors: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self._storages: WeakValueDictionary[Any, torch.UntypedStorage] = WeakValueDictionary()
        self._keep: list[Any] = []  # originals, so that no id is used twice

    def of(self, tensor: Tensor) -> Tensor:
        """The stand-in of a tensor, made at the first call."""
        found = self._tensors.get(id(tensor))
        return self._remember(tensor, self._make(tensor)) if found is None else found

    def of_constant(self, tensor: Tensor) -> Tensor:
        """The stand-in of a tensor that is no weight: a few floats keep their values too."""
        if id(tensor) in self._tensors or not self._is_constant(tensor):
            return self.of(tensor)
        return self._remember(tensor, self._copy(tensor))

    def _remember(self, tensor: Tensor, made: Tensor) -> Tensor:
        self._tensors[id(tensor)] = made
        self._tensors[id(made)] = made
        self._keep.append(tensor)
        return made

    def _is_constant(self, tensor: Tensor) -> bool:
        """Whether a tensor has a few floats of its own, that no weight shares and nothing made."""
        if tensor.requires_grad or tensor.numel() > known.MOST_CONSTANTS or _is_unusual(tensor):
            return False
        key = (tensor.untyped_storage()._cdata, self._dtype_of(tensor))
        return key not in self._storages and tensor.device.type != "meta" and _has_data(tensor)

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor has a stand-in, or is one."""
        return id(tensor) in self._tensors

    def hollow(self, tensor: Tensor) -> Tensor:
        """A stand-in of a tensor's data that requires a gradient as it does, and is not kept."""
        with torch.no_grad():
            return self._data(tensor).requires_grad_(tensor.requires_grad)

    def stands_for_itself(self, tensor: Tensor) -> None:
        """Take a tensor for its own stand-in."""
        self._tensors[id(tensor)] = tensor

    def forget(self) -> None:
        """Let go of everything."""
        self._tensors.clear()
        self._storages.clear()
        self._keep.clear()

    def _make(self, tensor: Tensor) -> Tensor:
        if is_lazy(tensor):
            return _uninitialized(tensor)
        with torch.no_grad():
            data = self._data(tensor)
            data = channels_last(data) if self._channels_last else data
        if isinstance(tensor, nn.Parameter):
            made: Tensor = nn.Parameter(data, requires_grad=tensor.requires_grad)
            vars(made).update(vars(tensor))
        else:
            made = data.requires_grad_(tensor.requires_grad and tensor.is_leaf)
        _copy_hooks(tensor, made)
        if tensor.grad is not None:
            made.grad = self.of(tensor.grad)
        return made

    def _data(self, tensor: Tensor) -> Tensor:
        if is_traceable_wrapper_subclass(tensor):
            return transform_subclass(
                tensor, lambda _, part: self._data(part) if isinstance(part, Tensor) else part
            )
        if tensor.layout is not torch.strided:
            return sparse.with_parts(tensor.detach(), self._data)
        if _keeps_values(tensor):
            return self._copy(tensor)
        dtype = self._dtype_of(tensor)
        original = tensor.untyped_storage()
        key = (original._cdata, dtype)
        storage = self._storages.get(key)
        if storage is None:
            elements = original.nbytes() // tensor.element_size()
            storage = self._storages[key] = hollow_storage(elements * dtype.itemsize)
            self._keep.append(original)
        offset = int(tensor.storage_offset())
        return on_storage(storage, tensor.shape, tensor.stride(), dtype, offset)

    def _copy(self, tensor: Tensor) -> Tensor:
        """A real copy."""
        return tensor.detach().clone().to(self._dtype_of(tensor))

    def _dtype_of(self, tensor: Tensor) -> torch.dtype:
        """The dtype of a tensor's stand-in."""
        dtype = tensor.dtype
        if self._dtype is None or not dtype.is_floating_point or keeps_dtype(tensor):
            return dtype
        return self._dtype


def _is_unusual(tensor: Tensor) -> bool:
    return is_traceable_wrapper_subclass(tensor) or tensor.layout is not torch.strided


def _keeps_values(tensor: Tensor) -> bool:
    """Integer and boolean tensors decide branches and sizes, as do an ONNX graph's constants.

    Weights do not.
    """
    if isinstance(tensor, nn.Parameter):
        return False
    if (tensor.dtype.is_floating_point or tensor.dtype.is_complex) and not is_constant(tensor):
        return False
    return known.is_small(tensor) and tensor.device.type != "meta" and _has_data(tensor)


def _has_data(tensor: Tensor) -> bool:
    """Whether a tensor outside of a trace has data, on whatever device."""
    return tensor.device.type != "cpu" or known.is_real(tensor)


def _uninitialized(tensor: Tensor) -> Tensor:
    """Another parameter or buffer of a lazy module, without a size."""
    options: Any = {"requires_grad": tensor.requires_grad, "dtype": tensor.dtype}
    is_parameter = isinstance(tensor, UninitializedParameter)
    kind: Any = UninitializedParameter if is_parameter else UninitializedBuffer
    made: Tensor = kind(**options)
    return made


def _copy_hooks(original: Tensor, made: Tensor) -> None:
    """The user's hooks on a parameter run in the trace too."""
    for hook in (getattr(original, "_backward_hooks", None) or {}).values():
        made.register_hook(hook)
    for hook in (getattr(original, "_post_accumulate_grad_hooks", None) or {}).values():
        made.register_post_accumulate_grad_hook(hook)


class Adoption:
    """Exchanges the tensors of modules, optimizers and scalers, and puts them back."""

    def __init__(self, stand_ins: StandIns) -> None:
        self.stand_ins = stand_ins
        self._modules: dict[int, tuple[nn.Module, dict[str, Any]]] = {}
        self._classes: dict[int, type[nn.Module]] = {}
        self._in_scripts: list[tuple[Any, str, Tensor]] = []
        self._others: list[tuple[Any, dict[str, Any]]] = []

    def module(self, root: nn.Module) -> None:
        """Exchange all tensors of a module and of those below it."""
        modules = [m for m in root.modules() if id(m) not in self._modules]
        for module in modules:
            self._modules[id(module)] = (module, attributes_of(vars(module)))
            self._classes[id(module)] = type(module)
        for module in modules:
            for held in (module._parameters, module._buffers):
                self._held(held)
        for module in modules:
            self._attributes(module)

    def _held(self, held: Any) -> None:
        """Exchange a module's own tensors; TorchScript keeps them where no snapshot reaches."""
        is_script = not isinstance(held, dict)
        for name, tensor in list(held.items()):
            if tensor is None:
                continue
            held[name] = self.stand_ins.of(tensor)
            if is_script:
                self._in_scripts.append((held, name, tensor))

    def _attributes(self, module: nn.Module) -> None:
        """Tensors that a module holds elsewhere, such as ``nn.LSTM._flat_weights``."""
        own = ("_parameters", "_buffers", "_modules")
        for name, value in list(vars(module).items()):
            is_full = type(value) in (list, tuple, dict) and bool(value)
            if name not in own and (is_full or isinstance(value, Tensor)):
                vars(module)[name] = _exchanged(value, self.stand_ins.of_constant)

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Exchange the parameters and states that an optimizer holds."""
        self._others.append((optimizer, attributes_of(vars(optimizer))))
        for group in optimizer.param_groups:
            group["params"][:] = [self.stand_ins.of(p) for p in group["params"]]  # LBFGS has it too
        of = self.stand_ins.of
        states = {
            of(p) if isinstance(p, Tensor) else p: _exchanged(state, of)
            for p, state in optimizer.state.items()
        }
        optimizer.state.clear()
        optimizer.state.update(states)

    def scaler(self, scaler: Any) -> None:
        """Let a GradScaler make its two tensors anew, with the values that they have."""
        self._others.append((scaler, attributes_of(vars(scaler))))
        if scaler._enabled and scaler._scale is not None:
            scaler._init_scale = float(scaler._scale)
            scaler._init_growth_tracker = int(scaler._growth_tracker)
            scaler._scale = scaler._growth_tracker = None

    def restore(self) -> None:
        """Put every attribute of every module, optimizer and scaler back as it was."""
        for held, name, tensor in self._in_scripts:
            held[name] = tensor
        for key, (module, saved) in self._modules.items():
            if type(module) is not self._classes[key]:  # a lazy module becomes another
                module.__class__ = self._classes[key]
            put_back(vars(module), saved)
        for other, saved in self._others:
            put_back(vars(other), saved)
        self.stand_ins.forget()


def _exchanged(value: Any, stand_in: Callable[[Tensor], Tensor], depth: int = 3) -> Any:
    """A value with stand-ins in the place of the tensors in it."""
    if isinstance(value, Tensor):
        return stand_in(value)
    if depth == 0:
        return value
    if type(value) in (list, tuple):
        return type(value)(_exchanged(item, stand_in, depth - 1) for item in value)
    if type(value) is dict:
        return {key: _exchanged(item, stand_in, depth - 1) for key, item in value.items()}
    return value
