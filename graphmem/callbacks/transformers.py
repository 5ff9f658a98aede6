"""A callback for the Trainer of transformers.

.. code-block:: python

    from graphmem.callbacks.transformers import MemoryCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[MemoryCallback(device="L4")])
    trainer.train()
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from graphmem.analysis import analyze
from graphmem.callbacks.examples import example_batch
from graphmem.callbacks.told import Telling
from graphmem.report import Report


class MemoryCallback(Telling, TrainerCallback):
    """Prints the predicted peak before the first step and, on a GPU, the measured one.

    The prediction is of the model, batch size, precision, accumulation, clipping and optimizer
    that the Trainer has. The model is left as it was. ``options`` are those of
    ``graphmem.analyze``.
    """

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Predict."""
        if state.is_world_process_zero:
            self._told.predict(lambda device: self._analyzed(args, device, **kwargs))

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Measure, once."""
        if state.is_world_process_zero:
            self._told.measure(state.global_step)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Measure, where there was no second step."""
        if state.is_world_process_zero:
            self._told.measure(state.global_step, is_last=True)

    def _analyzed(
        self,
        args: TrainingArguments,
        device: str | None,
        *,
        model: nn.Module,
        optimizer: Any,
        train_dataloader: Any,
        **others: Any,
    ) -> Report:
        inputs = self._inputs
        if inputs is None:
            inputs = example_batch(train_dataloader, args.train_batch_size)
        return analyze(
            getattr(model, "module", model),  # of a data-parallel wrapper
            (),
            dict(inputs),
            device=device,
            **{**_options_of(args), "optimizer": _anew(optimizer), **self._options},
        )


def _options_of(args: TrainingArguments) -> dict[str, Any]:
    """How the Trainer runs a step, in the words of ``graphmem.analyze``."""
    return {
        "precision": "amp-bf16" if args.bf16 else "amp-fp16" if args.fp16 else None,
        "accumulate": args.gradient_accumulation_steps,
        "clip_grad_norm": args.max_grad_norm or None,
    }


def _anew(optimizer: Any) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
    """One as the Trainer's, of other parameters."""
    own = getattr(optimizer, "optimizer", optimizer)  # of accelerate's wrapper
    takes = inspect.signature(type(own)).parameters
    # Some classes keep defaults that their constructor sets by itself.
    given = {name: value for name, value in own.defaults.items() if name in takes}

    def make(parameters: Iterable[nn.Parameter]) -> Optimizer:
        made: Optimizer = type(own)(parameters, **given)
        return made

    return make
