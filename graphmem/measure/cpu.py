"""Verification on the CPU: a real run under the profiler beside the prediction."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphmem import liveness
from graphmem.allocator import block_bytes
from graphmem.errors import UsageError, one_line
from graphmem.measure.pairing import unmatched
from graphmem.measure.profile import profiled
from graphmem.measure.stream import Event, Scratch, Stream, peak_of, scratch_of, without
from graphmem.options import Options, Target
from graphmem.resolve import make_options
from graphmem.schedule import Schedule
from graphmem.trace import known
from graphmem.trace.adapters import LoraSettings, freeze, with_lora
from graphmem.trace.inputs import Call, as_call, named, real_input, replace
from graphmem.trace.layouts import check_channels_last, image
from graphmem.trace.optimizers import OptimizerChoice
from graphmem.trace.parallel import Alone
from graphmem.trace.quantized import packed_weights
from graphmem.trace.run import explained, model_dtype, spread_of, trace_model
from graphmem.trace.step import Loop


@dataclass(frozen=True, slots=True)
class Verification:
    """A prediction beside a real run; sizes are bytes.

    ``difference_bytes`` is measured minus predicted. ``scratch`` lists by operator what
    the real kernels allocated for themselves; ``unexplained_bytes`` is what the measured
    peak would still differ by without that scratch.
    """

    predicted_peak_bytes: int
    measured_peak_bytes: int
    scratch: tuple[Scratch, ...]
    unexplained_bytes: int

    @property
    def difference_bytes(self) -> int:
        """Measured minus predicted."""
        return self.measured_peak_bytes - self.predicted_peak_bytes

    def to_dict(self) -> dict[str, Any]:
        """As JSON values: ``{predicted, measured, difference, explained}``."""
        return {
            "predicted": {"peak_bytes": self.predicted_peak_bytes},
            "measured": {"peak_bytes": self.measured_peak_bytes},
            "difference": {
                "peak_bytes": self.difference_bytes,
                "unexplained_bytes": self.unexplained_bytes,
            },
            "explained": [asdict(row) for row in self.scratch],
        }


def verify(
    model: nn.Module,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerChoice = "adamw",
    **options: Any,
) -> Verification:
    """Run a model's steps for real on the CPU and compare the peak with the prediction.

    Takes what ``graphmem.analyze`` takes. The model is copied and left as it was; it must
    have its weights in memory.

    Raises:
        UsageError: if the model lies on the meta device.
    """
    resolved = make_options(**{**options, "target": "cpu"})
    return verify_call(model, as_call(inputs, kwargs), resolved, loss=loss, optimizer=optimizer)


def verify_call(
    model: nn.Module,
    call: Call,
    options: Options,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerChoice = "adamw",
) -> Verification:
    """As ``verify``, with resolved options and a call ``(args, kwargs)``."""
    if any(t.is_meta for t in (*model.parameters(), *model.buffers())):
        raise UsageError("verify needs real weights: build the model on the CPU, not on meta")
    dtype = model_dtype(options)
    real = _copy(model).to(device="cpu", dtype=dtype)
    real_call: Call = replace(call, lambda leaf: real_input(leaf, dtype))
    if options.channels_last:
        check_channels_last(real)
        moved: Any = real
        real = moved.to(memory_format=torch.channels_last)
        real_call = replace(real_call, image)
    real, options = _adapted(real, options, dtype)
    schedule = trace_model(real, real_call, options, loss, optimizer).schedule
    loop = Loop(real, *real_call, options, loss, optimizer)
    with explained(), spread_of(real, options) as ranks:
        ranks.shard_really()
        start = resident_bytes(real, real_call)
        measured = profiled(lambda: _run(loop, options, ranks))
    return compare(schedule, measured, start)


def _adapted(
    real: nn.Module, options: Options, dtype: torch.dtype | None
) -> tuple[nn.Module, Options]:
    """The model with the frozen parts and adapters that are asked for."""
    if options.quantize is not None:
        raise UsageError("quantize: bitsandbytes' kernels can't be verified on the CPU")
    if options.freeze is not None:
        freeze(real, options.freeze)
        options = dataclasses.replace(options, freeze=None)
    if options.lora is None:
        return real, options
    return with_lora(real, LoraSettings.of(options.lora), dtype), dataclasses.replace(
        options, lora=None
    )


def _copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"verify runs on a copy of the model, and it can't be copied: {one_line(error)}"
        ) from error


def _run(loop: Loop, options: Options, ranks: Alone) -> None:
    loop.called = ranks.called(loop.model)
    loop.optimizer = ranks.optimizer(loop.optimizer)
    with loop.changed():
        loop.prepare()
        for _ in range(options.steps):
            loop.step()


def compare(schedule: Schedule, measured: Stream, start: int) -> Verification:
    """A predicted schedule beside the events of a real run.

    Args:
        start: bytes that were live before the first event.
    """
    live = liveness.measure(schedule, lambda s: block_bytes(s.nbytes, Target.CPU))
    predicted = as_stream(schedule)
    extra, missing = unmatched(measured, predicted)
    peak, at = peak_of(measured.events, start)
    predicted_peak, predicted_at = peak_of(predicted.events, start)
    bare, _ = peak_of(without(measured.events, extra), start)
    predicted_bare, _ = peak_of(without(predicted.events, missing), start)
    return Verification(
        predicted_peak_bytes=live.peak_bytes,
        measured_peak_bytes=peak,
        scratch=(
            *scratch_of(measured, extra, at, "allocated, not predicted"),
            *scratch_of(predicted, missing, predicted_at, "predicted, not allocated"),
        ),
        unexplained_bytes=min(peak - predicted_peak, bare - predicted_bare, key=abs),
    )


def as_stream(schedule: Schedule) -> Stream:
    """A schedule's own allocations and releases, scratch included."""
    return Stream(
        tuple(_events(schedule)), tuple(_profiler_name(op.target) for op in schedule.operations)
    )


def _profiler_name(target: str) -> str:
    """``aten.add.Tensor`` as the profiler has it: ``aten::add``."""
    namespace, _, rest = target.partition(".")
    return f"{namespace}::{rest.split('.')[0]}"


def _events(schedule: Schedule) -> Iterator[Event]:
    for op in schedule.operations:
        calls = (op.index,)
        for i in op.allocates:
            if schedule.storages[i].nbytes:
                yield Event(schedule.storages[i].nbytes, i, calls)
        for stage in op.scratch:
            yield from (Event(nbytes, -1 - n, calls) for n, nbytes in enumerate(stage))
            yield from (Event(-nbytes, -1 - n) for n, nbytes in enumerate(stage))
        for i in op.frees:
            if schedule.storages[i].nbytes:
                yield Event(-schedule.storages[i].nbytes, i)


def resident_bytes(model: nn.Module, call: Call) -> int:
    """The bytes of all storages that stand in memory before the first step."""
    tensors: Iterable[Tensor] = (
        *model.parameters(),
        *(p.grad for p in model.parameters() if p.grad is not None),
        *model.buffers(),
        *(tensor for _, tensor in named(call, [])),
    )
    parts = known.parts_in(list(tensors))
    storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in parts}
    packed = sum(size for module in model.modules() for _, size in packed_weights(module))
    return packed + sum(storage.nbytes() for storage in storages.values())
