"""A real run in ONNX Runtime, its profile beside the prediction, node by node.

ONNX Runtime's profile tells for every kernel what its arena holds once the kernel has run:
``mem_bytes_requested_in_use``, ``mem_bytes_in_use``, ``mem_in_use_peak`` (since the session
began) and ``mem_arena_held`` (since ONNX Runtime 1.28, onnxruntime PR #29058).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphmem.allocator.bfc import ArenaSettings
from graphmem.errors import ModelLoadError, UsageError
from graphmem.ort import Moment, Run
from graphmem.ort.copies import TO_HOST
from graphmem.serving.session import Served
from graphmem.serving.settings import Provider, ServeSettings
from graphmem.sources.inputs import InputSpec
from graphmem.sources.onnx.runtime.refusals import reason


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peaks over the kernels of a run, in bytes."""

    requested_peak_bytes: int
    in_use_peak_bytes: int
    arena_bytes: int


@dataclass(frozen=True, slots=True)
class NodePair:
    """One kernel: what was predicted and measured in the arena after it; None: not there."""

    run: int
    node: str
    op: str
    predicted: Peaks | None
    measured: Peaks | None


@dataclass(frozen=True, slots=True)
class ServingVerification:
    """A prediction beside a measurement, the first run and the later ones apart.

    ``explained`` says why they may differ; ``nodes`` are all kernels, in order.
    """

    predicted: tuple[Peaks, ...]
    measured: tuple[Peaks, ...]
    nodes: tuple[NodePair, ...]
    explained: tuple[str, ...] = ()

    @property
    def worst(self) -> float:
        """The largest relative difference of a requested or in-use peak."""
        return max((abs(a - b) / max(b, 1) for a, b in self._peaks()), default=0.0)

    @property
    def worst_bytes(self) -> int:
        """The largest difference of a requested or in-use peak."""
        return max((abs(a - b) for a, b in self._peaks()), default=0)

    def _peaks(self) -> Iterator[tuple[int, int]]:
        for mine, real in zip(self.predicted, self.measured, strict=True):
            yield mine.requested_peak_bytes, real.requested_peak_bytes
            yield mine.in_use_peak_bytes, real.in_use_peak_bytes

    def to_dict(self, nodes: bool = False) -> dict[str, Any]:
        """As JSON values."""
        predicted, measured = _sides(self.predicted), _sides(self.measured)
        made: dict[str, Any] = {
            "predicted": predicted,
            "measured": measured,
            "difference": {
                key: {name: measured[key][name] - predicted[key][name] for name in measured[key]}
                if isinstance(measured[key], dict)
                else measured[key] - predicted[key]
                for key in measured
            },
            "explained": list(self.explained),
        }
        if nodes:
            made["nodes"] = [asdict(pair) for pair in self.nodes]
        return made


def _sides(runs: Sequence[Peaks]) -> dict[str, Any]:
    first, later = asdict(runs[0]), asdict(runs[-1])
    largest = {name: max(first[name], later[name]) for name in first}
    return {**largest, "first_run": first, "later_runs": later}


def measured_runs(
    path: str, feeds: Mapping[str, Any], settings: ServeSettings
) -> tuple[tuple[Moment, ...], ...]:
    """Run a model and read the profile: the kernels of each run.

    Raises:
        UsageError: ONNX Runtime is not installed, or its profile has no figures of the arena.
        ModelLoadError: it refuses the model or the inputs.
    """
    try:
        import onnxruntime
    except ImportError:
        raise UsageError("verify: the package onnxruntime is not installed") from None
    on_cuda = settings.provider is Provider.CUDA
    if settings.run.arena != ArenaSettings() and not on_cuda:
        raise UsageError("verify: a CPU session has the default arena; leave its options out")
    providers = _cuda_providers(settings) if on_cuda else ["CPUExecutionProvider"]
    if on_cuda:
        onnxruntime.set_default_logger_severity(4)  # why there is no provider is told below
    with tempfile.TemporaryDirectory() as folder:
        options = _options(onnxruntime, settings, str(Path(folder) / "profile"))
        try:
            session = onnxruntime.InferenceSession(path, options, providers=providers)
            if on_cuda and "CUDAExecutionProvider" not in session.get_providers():
                raise UsageError(
                    "verify: ONNX Runtime has no CUDA provider that works here; without "
                    "--provider cuda the plan of the CPU's is verified"
                )
            for _ in range(settings.runs):
                session.run(None, dict(feeds))
        except UsageError:
            raise
        except Exception as error:
            raise ModelLoadError(f"{path}: ONNX Runtime: {reason(error)}") from error
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return _moments(path, events, str(providers[0] if not on_cuda else "CUDAExecutionProvider"))


def _cuda_providers(settings: ServeSettings) -> list[Any]:
    """The CUDA provider with its options in ONNX Runtime's own values, then the CPU's."""
    arena = settings.run.arena
    given = {name: value for name, value in settings.cuda.given if "." not in name}
    given["arena_extend_strategy"] = str(arena.strategy)
    if arena.limit is not None:
        given["gpu_mem_limit"] = str(arena.limit)
    return [("CUDAExecutionProvider", given), "CPUExecutionProvider"]


def _options(onnxruntime: Any, settings: ServeSettings, prefix: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = prefix
    options.log_severity_level = 4
    options.intra_op_num_threads = settings.threads
    options.enable_mem_pattern = settings.run.mem_pattern
    options.enable_mem_reuse = settings.run.mem_reuse
    for name, value in settings.cuda.given:
        if name.startswith("session."):
            options.add_session_config_entry(name, value)
    if not settings.packs:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if not settings.optimize:
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    return options


def _moments(
    path: str, events: list[dict[str, Any]], provider: str
) -> tuple[tuple[Moment, ...], ...]:
    """The kernels of each run that have the arena of a provider."""
    runs: list[list[Moment]] = [[]]
    for event in events:
        if event["name"] == "model_run":
            runs.append([])
        elif (
            event.get("cat") == "Node"
            and event["name"].endswith("_kernel_time")
            and event["args"].get("provider", provider) == provider
        ):
            runs[-1].append(_moment(path, event))
    return tuple(map(tuple, runs[:-1]))


def _moment(path: str, event: dict[str, Any]) -> Moment:
    args = event["args"]
    if "mem_bytes_in_use" not in args:
        raise UsageError(
            f"{path}: this ONNX Runtime's profile has no figures of its arena; use 1.28 or later"
        )
    return Moment(
        node=event["name"].removesuffix("_kernel_time"),
        op=args["op_name"],
        depth=0,
        requested=int(args["mem_bytes_requested_in_use"]),
        in_use=int(args["mem_bytes_in_use"]),
        peak=int(args["mem_in_use_peak"]),
        held=int(args["mem_arena_held"]),
    )


def verify_serving(served: Served, settings: ServeSettings) -> ServingVerification:
    """Run what was simulated, and put both sides together.

    Raises:
        UsageError: there is no such ONNX Runtime, or no such profile.
        ModelLoadError: it refuses the model or the inputs.
    """
    feeds = {name: feed_of(value) for name, value in served.values.items() if value is not None}
    return compared(
        _in_arena(served), measured_runs(served.path, feeds, settings), _caveats(served)
    )


def _in_arena(served: Served) -> tuple[Run, ...]:
    """The runs with the kernels that the provider runs: of CUDA's those on the device.

    Copies to the host are made by the CUDA provider too.
    """
    if served.cuda is None:
        return served.runs
    host = {name for name in served.cuda.host if not name.startswith(f"{TO_HOST}/")}
    return tuple(
        replace(run, moments=tuple(m for m in run.moments if m.node not in host))
        for run in served.runs
    )


def _caveats(served: Served) -> list[str]:
    nodes = served.assembled.execution.graph.nodes
    turned = sum(node.op.endswith(".ReorderOutput") for node in nodes)
    notes = [f"{item.what}: assumed {item.assumed}" for item in served.unknown]
    if turned > 1:
        notes.append(
            f"the {turned} nodes that bring a blocked layout back are made in an order that "
            "changes from one process to the next, and with it the order in which nodes run"
        )
    return notes


def compared(
    predicted: Sequence[Run], measured: Sequence[Sequence[Moment]], explained: Sequence[str] = ()
) -> ServingVerification:
    """Both sides together."""
    return ServingVerification(
        predicted=tuple(_peaks(run.moments) for run in predicted),
        measured=tuple(map(_peaks, measured)),
        nodes=tuple(
            pair
            for number, (mine, real) in enumerate(zip(predicted, measured, strict=True), start=1)
            for pair in _pairs(number, mine.moments, real)
        ),
        explained=tuple(explained),
    )


def _peaks(moments: Sequence[Moment]) -> Peaks:
    return Peaks(
        max((m.requested for m in moments), default=0),
        max((m.in_use for m in moments), default=0),
        max((m.held for m in moments), default=0),
    )


def _pairs(number: int, mine: Sequence[Moment], real: Sequence[Moment]) -> list[NodePair]:
    pairs = []
    for at in range(max(len(mine), len(real))):
        one = mine[at] if at < len(mine) else None
        other = real[at] if at < len(real) else None
        known = other or one
        assert known is not None
        pairs.append(NodePair(number, known.node, known.op, _figures(one), _figures(other)))
    return pairs


def _figures(moment: Moment | None) -> Peaks | None:
    return None if moment is None else Peaks(moment.requested, moment.in_use, moment.held)


def feed_of(value: Any) -> Any:
    """What ONNX Runtime is given for an input: zeros where no value is known."""
    if isinstance(value, InputSpec):
        tensor = value.materialize() if value.fill is not None else None
        return _zeros(value) if tensor is None else tensor.numpy()
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, list):
        return [feed_of(item) for item in value]
    return value


def _zeros(spec: InputSpec) -> Any:
    import torch

    return np.asarray(torch.zeros(spec.shape, dtype=spec.dtype).numpy())
