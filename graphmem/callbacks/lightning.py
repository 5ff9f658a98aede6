"""A callback for Lightning's Trainer.

.. code-block:: python

    from graphmem.callbacks.lightning import MemoryCallback

    trainer = Trainer(max_epochs=3, callbacks=[MemoryCallback(device="L4")])
    trainer.fit(module, loader)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

import torch

from graphmem.analysis import record
from graphmem.callbacks.examples import example_batch
from graphmem.callbacks.told import Telling
from graphmem.errors import UsageError
from graphmem.report import Report


def _lightning() -> Any:
    """Lightning, by its name or the older one of the same package."""
    try:
        return import_module("lightning.pytorch")
    except ModuleNotFoundError:
        return import_module("pytorch_lightning")


_AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
_OTHERS = ("32-true", "64-true", "bf16-true", "16-true")


class MemoryCallback(Telling, _lightning().Callback):  # type: ignore[misc]  # either package's
    """Prints the predicted peak before the first step and, on a GPU, the measured one.

    The module's own ``training_step`` is run as Lightning runs it: gradients of the step before
    live until its loss is there. What it logs meanwhile goes nowhere. ``options`` are those of
    ``graphmem.record``.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Predict."""
        if trainer.is_global_zero:
            self._told.predict(lambda device: self._recorded(trainer, pl_module, device))

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Measure, once."""
        if trainer.is_global_zero:
            self._told.measure(trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Measure, where there was no second step."""
        if trainer.is_global_zero:
            self._told.measure(trainer.global_step, is_last=True)

    def _recorded(self, trainer: Any, module: Any, device: str | None) -> Report:
        batch = self._inputs
        if batch is None:
            batch = example_batch(_loader(trainer))
        step = _step(trainer, module, batch)
        with _unlogged(module):
            return record(step, device=device, **self._options)


def _loader(trainer: Any) -> Any:
    loaders = trainer.train_dataloader
    return loaders if hasattr(loaders, "dataset") else None


def _step(trainer: Any, module: Any, batch: Any) -> Callable[[], None]:
    """One step of automatic optimization.

    Source: ``_AutomaticOptimization`` in lightning/pytorch/loops/optimization/automatic.py
    (2.6): ``optimizer.step(closure)``, and the closure is training_step, zero_grad, backward; the
    loss is divided by the number of micro-batches, also if that is one, and copied.
    """
    if not module.automatic_optimization:
        raise UsageError("manual optimization: record your own step by graphmem.record")
    if len(trainer.optimizers) != 1:
        raise UsageError(f"automatic optimization has one optimizer, not {len(trainer.optimizers)}")
    (optimizer,) = trainer.optimizers
    count, autocast = trainer.accumulate_grad_batches, _autocast(str(trainer.precision))
    clip = trainer.gradient_clip_val

    def loss() -> tuple[torch.Tensor, torch.Tensor]:
        """The loss, a part of the step's, and the copy that Lightning keeps of it."""
        with autocast():
            output = module.training_step(batch, 0)
        scaled = (output["loss"] if isinstance(output, dict) else output) / count
        return scaled, scaled.detach().clone()

    def closure(*, is_first: bool) -> Any:
        scaled, kept = loss()
        if is_first:
            optimizer.zero_grad()
        scaled.backward()
        return kept

    def step() -> None:
        for part in range(count - 1):
            closure(is_first=part == 0)

        def last() -> Any:
            kept = closure(is_first=count == 1)
            if clip:
                torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            return kept

        optimizer.step(last)

    return step


def _autocast(precision: str) -> Callable[[], AbstractContextManager[Any]]:
    if precision in _AUTOCAST:
        dtype = _AUTOCAST[precision]
        return lambda: torch.autocast("cuda", dtype)
    if precision not in _OTHERS:
        raise UsageError(f"precision {precision!r}: record your own step by graphmem.record")
    return nullcontext


@contextmanager
def _unlogged(module: Any) -> Iterator[None]:
    """``self.log`` of a module does nothing."""
    names = ("log", "log_dict")
    for name in names:
        object.__setattr__(module, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for name in names:
            object.__delattr__(module, name)
