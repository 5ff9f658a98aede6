"""The default step: what the tutorials write, and inference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphmem import techniques
from graphmem.errors import TraceError, UsageError
from graphmem.options import Mode, Options, Precision, Target
from graphmem.trace.checkpointing import checkpointed, checkpointed_modules, without_cache
from graphmem.trace.chunked_loss import ChunkedLoss
from graphmem.trace.host_optimizer import HostOptimizer, ignored
from graphmem.trace.in_backward import needs_closure, step_in_backward
from graphmem.trace.layouts import check_channels_last
from graphmem.trace.master_weights import MasterWeights
from graphmem.trace.modules import all_tensors
from graphmem.trace.offloading import real_hooks
from graphmem.trace.optim import Hints, hints_of
from graphmem.trace.optimizers import OptimizerChoice, make_optimizer

Loss = Callable[[Any], Tensor]


@dataclass(slots=True)
class Loop:
    """A model and what it needs to be stepped, as it would stand in a training script.

    The outputs and the loss of a step stay referenced until the next one replaces them.
    Under ``Target.CUDA`` a GradScaler scales the loss where gradients are fp16 at first: with
    ``amp-fp16``, and with ``fp16`` and master weights (see ``master_weights``).
    ``in_optimizer`` is a context around what the loop does beside ``optimizer.step``;
    ``called`` is called in the model's place, if it is compiled or another module is around it.
    ``checkpoints`` are the modules that are checkpointed, by path;
    ``saved_on_host`` gives the hooks of ``save_on_cpu``, and ``lies_on_host`` is told of what
    the optimizer has on the host, ``without_gradient`` of modules that a reentrant
    checkpoint gives no gradient. ``cache_is_off`` says that checkpoints took a model of
    transformers its cache.
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
    called: Callable[..., Any] | None = None
    masters: MasterWeights | HostOptimizer | None = None
    saved_on_host: Callable[[bool], AbstractContextManager[Any]] = real_hooks
    lies_on_host: Callable[[Tensor], None] = ignored
    checkpoints: Mapping[str, nn.Module] = field(default_factory=dict)
    without_gradient: Callable[[str], None] = ignored
    cache_is_off: bool = False
    in_optimizer: Callable[[], AbstractContextManager[Any]] = nullcontext
    _optimizer: Any = None
    _scaler: Any = None
    _updates: Any = None
    _chunked: ChunkedLoss | None = None

    @contextmanager
    def changed(self) -> Iterator[None]:
        """The modules are called as the options say, such as in checkpoints, inside."""
        if self.options.channels_last:
            check_channels_last(self.model)
        self.checkpoints = checkpointed_modules(self.model, self.options)
        keeps_none = without_cache(self.model) if self.checkpoints else nullcontext(False)
        with checkpointed(self.checkpoints, self.options, self.without_gradient), keeps_none as off:
            self.cache_is_off = off
            yield

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
        options = self.options
        if options.chunked_loss is not None:
            if self.loss is not None:
                raise UsageError("chunked loss: it takes the place of loss; leave one of them out")
            self._chunked = ChunkedLoss(self.model, options.chunked_loss)
        if options.optimizer_in_backward:
            self._updates = step_in_backward(self.model.parameters(), self.optimizer, options)
            return
        self.masters = self._masters()
        self._optimizer = make_optimizer(
            self.optimizer, self._optimized(), self.options, self._hints()
        )
        if options.target is Target.CUDA and options.has_fp16_gradients:
            self._scaler = torch.amp.GradScaler("cuda")
        if needs_closure(self._optimizer) and (self._scaler or self.masters):
            raise UsageError(
                f"{type(self._optimizer).__name__} evaluates the model itself, which GradScaler, "
                "master weights and an optimizer on the host do not support"
            )

    def _hints(self) -> Hints:
        """What the optimizer may ask of the model."""
        return hints_of(self.model, {} if self.masters is None else self.masters.copies)

    def _masters(self) -> MasterWeights | HostOptimizer | None:
        parameters, masters = self.model.parameters(), self.options.master_weights
        if "optimizer" in techniques.parts(self.options.offload):
            return HostOptimizer(parameters, masters, self.lies_on_host)
        return MasterWeights(parameters) if masters else None

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
        if self._updates is not None:
            self._closure()
            return
        if needs_closure(self._optimizer):
            self._optimizer.step(self._closure)
            return
        self._closure()
        on_host = isinstance(self.masters, HostOptimizer)
        if on_host:
            self._clip(list(self.model.parameters()))
        if self.masters is not None:
            with self.in_optimizer():
                self.masters.take_gradients()
        if not on_host:
            self._clip(self._optimized())
        self._update()

    def _clip(self, parameters: list[nn.Parameter]) -> None:
        if self.options.clip_grad_norm is not None:
            if self._scaler is not None:
                self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(parameters, self.options.clip_grad_norm)

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
        if self._updates is None and not isinstance(self.masters, HostOptimizer):
            self._optimizer.zero_grad(set_to_none=options.set_to_none)
        for _ in range(options.accumulate):
            with _autocast(options):
                self._output_and_loss()
            if options.accumulate > 1:
                self.loss_value = self.loss_value / options.accumulate
            if self._scaler is None:
                self.loss_value.backward()
            else:
                self._scaler.scale(self.loss_value).backward()
        return cast(Tensor, self.loss_value)

    def _output_and_loss(self) -> None:
        offloads = "activations" in techniques.parts(self.options.offload)
        hooks = self.saved_on_host(self.options.pin_memory) if offloads else nullcontext()
        if self._chunked is not None:
            with hooks:
                self.output, self.loss_value = self._chunked(self.args, self.kwargs)
            return
        with hooks:
            self.output = self._forward()
        self.loss_value = self._loss_of(self.output)

    def _infer(self) -> None:
        with _grad_context(self.options.grad), _autocast(self.options):
            self.output = self._forward()

    def _forward(self) -> Any:
        run = self.model if self.called is None else self.called
        return run(*self.args, **self.kwargs)

    def _loss_of(self, output: Any) -> Tensor:
        value = self.loss(output) if self.loss is not None else default_loss(output)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise UsageError(
                f"the loss must be a tensor of one element, not {_described(value)}; "
                "give loss= a callable of the model's output"
            )
        if not value.requires_grad and self.options.checkpoint_reentrant:
            raise UsageError(
                "the loss does not depend on any parameter that requires a gradient: a reentrant "
                "checkpoint gives none where none of its inputs requires one; leave out "
                "checkpoint reentrant"
            )
        if not value.requires_grad:
            raise UsageError(
                "the loss does not depend on any parameter that requires a gradient; "
                "is the whole model frozen? mode='inference' needs no loss"
            )
        return value


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
