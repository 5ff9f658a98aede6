"""The default step: what the tutorials write, and inference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphmem.errors import TraceError, UsageError
from graphmem.options import Mode, Options, Precision, Target
from graphmem.trace.master_weights import MasterWeights
from graphmem.trace.modules import all_tensors
from graphmem.trace.optimizers import OptimizerChoice, make_optimizer

Loss = Callable[[Any], Tensor]


@dataclass(slots=True)
class Loop:
    """A model and what it needs to be stepped, as it would stand in a training script.

    The outputs and the loss of a step stay referenced until the next one replaces them.
    Under ``Target.CUDA`` a GradScaler scales the loss where gradients are fp16 at first: with
    ``amp-fp16``, and with ``fp16`` and master weights (see ``master_weights``).
    ``in_optimizer`` is a context around what the loop does beside ``optimizer.step``;
    ``compiled`` is called in the model's place, if it is compiled, and ``wrapped``, if another
    module is around it.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Options
    loss: Loss | None = None
    optimizer: OptimizerChoice = "adamw"
    output: Any = None
    loss_value: Any = None
    mode_is_fixed: bool = False
    compiled: Callable[..., Any] | None = None
    wrapped: Callable[..., Any] | None = None
    masters: MasterWeights | None = None
    in_optimizer: Callable[[], AbstractContextManager[Any]] = nullcontext
    _optimizer: Any = None
    _scaler: Any = None

    def prepare(self) -> None:
        """Set the model's mode and make the optimizer, before the first step."""
        training = self.options.mode is Mode.TRAINING
        try:
            self.model.train(training)
        except NotImplementedError:  # torch.export: a program keeps the mode it was made in
            self.mode_is_fixed = True
        if training:
            self._prepare_training()

    def _prepare_training(self) -> None:
        if self.options.master_weights:
            self.masters = MasterWeights(self.model.parameters())
        self._optimizer = make_optimizer(self.optimizer, self._optimized(), self.options)
        if _scales(self.options):
            self._scaler = torch.amp.GradScaler("cuda")
        if needs_closure(self._optimizer) and (self._scaler or self.masters):
            raise UsageError(
                f"{type(self._optimizer).__name__} evaluates the model itself, which GradScaler "
                f"and master weights do not support; use another precision than "
                f"{self.options.precision}"
            )

    def _optimized(self) -> list[nn.Parameter]:
        """What the optimizer works on."""
        return list(self.model.parameters()) if self.masters is None else self.masters.optimized

    def step(self) -> None:
        """Run one step."""
        if self.options.mode is Mode.TRAINING:
            self._train()
        else:
            self._infer()

    def results(self) -> tuple[Any, Any]:
        """What the latest step left referenced."""
        return self.output, self.loss_value

    def _train(self) -> None:
        if needs_closure(self._optimizer):
            self._optimizer.step(self._closure)
            return
        self._closure()
        if self.masters is not None:
            with self.in_optimizer():
                self.masters.take_gradients()
        if self.options.clip_grad_norm is not None:
            if self._scaler is not None:
                self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(self._optimized(), self.options.clip_grad_norm)
        self._update()

    def _update(self) -> None:
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        if self.masters is not None:
            with self.in_optimizer():
                self.masters.give_back()

    def _closure(self) -> Tensor:
        """zero_grad, and for each micro-batch forward, loss and backward."""
        options = self.options
        self._optimizer.zero_grad(set_to_none=options.set_to_none)
        for _ in range(options.accumulate):
            with _autocast(options):
                self.output = self._forward()
                self.loss_value = self._loss_of(self.output)
            if options.accumulate > 1:
                self.loss_value = self.loss_value / options.accumulate
            if self._scaler is None:
                self.loss_value.backward()
            else:
                self._scaler.scale(self.loss_value).backward()
        return cast(Tensor, self.loss_value)

    def _infer(self) -> None:
        with _grad_context(self.options.grad), _autocast(self.options):
            self.output = self._forward()

    def _forward(self) -> Any:
        run = self.compiled or self.wrapped or self.model
        return run(*self.args, **self.kwargs)

    def _loss_of(self, output: Any) -> Tensor:
        value = self.loss(output) if self.loss is not None else default_loss(output)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise UsageError(
                f"the loss must be a tensor of one element, not {_described(value)}; "
                "give loss= a callable of the model's output"
            )
        if not value.requires_grad:
            raise UsageError(
                "the loss does not depend on any parameter that requires a gradient; "
                "is the whole model frozen? mode='inference' needs no loss"
            )
        return value


def _scales(options: Options) -> bool:
    """Whether the loop has a GradScaler."""
    halves = Precision.FP16 if options.master_weights else Precision.AMP_FP16
    return options.target is Target.CUDA and options.precision is halves


def needs_closure(optimizer: Any) -> bool:
    """Whether an optimizer evaluates the model itself, as LBFGS does."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def default_loss(output: Any) -> Tensor:
    """``output.loss`` if there is one, else the mean of the floating-point outputs.

    Raises:
        TraceError: if the output has neither.
    """
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    floats = [t for t in all_tensors(output) if t.is_floating_point() and t.requires_grad]
    if not floats:
        raise TraceError(
            f"the model returned {_described(output)} without a floating-point tensor that "
            "depends on a parameter: give loss= a callable of the output, or mode='inference'"
        )
    total = floats[0].mean()
    for tensor in floats[1:]:
        total = total + tensor.mean()
    return total


def _grad_context(name: str) -> AbstractContextManager[Any]:
    if name == "inference_mode":
        return torch.inference_mode()
    return torch.no_grad() if name == "no_grad" else nullcontext()


def _autocast(options: Options) -> AbstractContextManager[Any]:
    """The target's autocast, around forward and loss."""
    dtypes = {Precision.AMP_BF16: torch.bfloat16, Precision.AMP_FP16: torch.float16}
    if options.precision not in dtypes:
        return nullcontext()
    return torch.autocast(str(options.target), dtype=dtypes[options.precision])
