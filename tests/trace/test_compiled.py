"""``torch.compile`` in a trace, beside what torch's own backends take for real."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, fx, nn
from torch._dynamo import trace_rules

import graphmem
from graphmem.compiled import fused, saved_bytes
from graphmem.errors import UsageError
from graphmem.liveness import measure
from graphmem.measure.cpu import resident_bytes
from graphmem.measure.profile import profiled
from graphmem.measure.stream import peak_of
from graphmem.resolve import make_options
from graphmem.schedule import Category, Schedule
from graphmem.trace.inputs import as_call
from graphmem.trace.run import Trace, trace_model
from graphmem.trace.step import Loop

TOLERANCE_BYTES = 64  # as in test_verified


class Block(nn.Module):
    """A residual block of a transformer, without attention."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Breaking(nn.Module):
    """Code that Dynamo can't capture stands between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.second(x)


def run(model: nn.Module, x: Any, *, compiled: bool = True, **options: Any) -> Trace:
    resolved = make_options(**{"target": "cpu", **options})
    return trace_model(model, as_call(x, None), resolved, optimizer="sgd", compiled=compiled)


def peak(schedule: Schedule) -> int:
    return measure(schedule, lambda storage: storage.nbytes).peak_bytes


def measured(model: nn.Module, x: Tensor, backend: str) -> int:
    """The peak of two real steps under torch.compile."""
    call, options = as_call(x, None), make_options(target="cpu")
    torch._dynamo.reset()
    real = copy.deepcopy(model)
    loop = Loop(real, *call, options, optimizer="sgd")
    loop.called = torch.compile(real, backend=backend)
    loop.prepare()

    def steps() -> None:
        loop.step()
        loop.step()

    events = profiled(steps).events
    torch._dynamo.reset()
    return peak_of(events, resident_bytes(model, call))[0]


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(Block(), Block(), Block()),
        nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Dropout(0.1), nn.Linear(128, 8)),
        Block(),  # what torch.compile makes of it asks it for a length, which it has none of
    ],
    ids=["blocks", "mlp", "block"],
)
def test_without_fusion_it_takes_what_the_graphs_take_for_real(model: nn.Module) -> None:
    x = torch.randn(256, 64)
    predicted = peak(run(model, x).schedule)
    assert abs(predicted - measured(model, x, "aot_eager_decomp_partition")) <= TOLERANCE_BYTES


def test_what_only_fused_kernels_see_takes_no_memory() -> None:
    x = torch.randn(256, 64)
    schedule = run(nn.Sequential(Block(), Block()), x, mode="inference").schedule
    eager = run(nn.Sequential(Block(), Block()), x, compiled=False, mode="inference").schedule
    weights = sum(s.nbytes for s in schedule.storages if s.category is Category.PARAMETERS)
    narrow, wide = 256 * 64 * 4, 256 * 256 * 4
    # At the second block's wide product: the input, the first step's output, the residual, its
    # norm and the product itself; the gelu is written over it.
    assert peak(fused(schedule)) == weights + 4 * narrow + wide
    assert peak(fused(schedule)) < peak(eager) < peak(schedule)


def test_recomputation_keeps_less_for_backward() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.GELU(), nn.SiLU(), nn.Linear(64, 1))
    x = torch.randn(128, 64)
    kept = saved_bytes(run(model, x).schedule)
    eager = saved_bytes(run(model, x, compiled=False).schedule)
    assert kept < eager


def test_operators_have_the_modules_and_lines_of_the_code() -> None:
    schedule = run(nn.Sequential(Block()), torch.empty(4, 64)).schedule
    places = {(op.module, op.phase) for op in schedule.operations if op.target == "aten.addmm"}
    assert places == {("0.up", "forward"), ("0.down", "forward")}
    (source,) = {op.source for op in schedule.operations if op.target == "aten.erf"}
    assert source is not None
    assert source.startswith("tests/trace/test_compiled.py:")


def test_a_graph_break_makes_two_graphs() -> None:
    assert run(Breaking(), torch.empty(4, 8)).compiled == 2
    assert run(Block(), torch.empty(4, 64)).compiled == 1


def test_counters_of_batches_have_no_value_as_on_a_gpu() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    assert run(model, torch.empty(2, 3, 8, 8, device="meta"), target="cuda").compiled == 1


@pytest.mark.parametrize("precision", ["amp-bf16", "bf16"])
def test_mixed_precision_is_cast_in_the_graph(precision: str) -> None:
    schedule = run(Block(), torch.empty(32, 64), target="cuda", precision=precision).schedule
    products = [op for op in schedule.operations if op.target == "aten.addmm" and op.step == 1]
    dtypes = {schedule.storages[op.allocates[0]].dtype for op in products}
    assert dtypes == {"bfloat16"}


def test_the_report_has_it_beside_the_eager_run() -> None:
    options: dict[str, Any] = {"optimizer": "sgd", "target": "cpu"}
    model, x = Block(), torch.empty(256, 64)
    plain = graphmem.analyze(model, x, **options)
    report = graphmem.analyze(model, x, compile=True, **options)
    assert report.peak == plain.peak
    assert report.compiled is not None
    assert report.compiled.graphs == 1
    assert report.compiled.allocated_bytes.low < report.compiled.allocated_bytes.high
    assert report.compiled.requested_bytes.high == peak(run(model, x).schedule)
    assert report.to_dict()["compiled"]["graphs"] == 1
    assert "Compiled" in str(report)
    assert "Compiled" not in str(plain)


def test_a_model_that_the_user_compiled_is_analyzed_as_it_was_written() -> None:
    model, x = Block(), torch.empty(256, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of inductor's import
        given = torch.compile(model)
    report = graphmem.analyze(given, x)  # type: ignore[arg-type]
    assert report.peak.allocated_bytes == graphmem.analyze(model, x).peak.allocated_bytes
    assert "what torch.compile makes of the model" in {item.what for item in report.unknown}


def test_nothing_of_it_stays() -> None:
    model, before = Block(), list(trace_rules.SKIP_DIRS)
    run(model, torch.empty(4, 64))
    assert before == trace_rules.SKIP_DIRS
    seen: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, inputs: Any) -> Any:
        seen.append(graph)
        return graph.forward

    torch.compile(model, backend=backend)(torch.randn(4, 64))
    assert len(seen) == 1
    torch._dynamo.reset()


def test_onnx_runtime_does_not_compile() -> None:
    with pytest.raises(UsageError, match=r"torch\.compile goes with target cuda or cpu"):
        make_options(target="onnxruntime", compile=True)
