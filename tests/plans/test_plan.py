"""Plans of a small model: every line is what analyze gives with its options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphmem
from graphmem.cli import main
from graphmem.errors import ExitCode, UsageError
from graphmem.largest import Memory
from graphmem.options import Options
from graphmem.plans import Plan, made
from graphmem.plans.candidates import CANDIDATES
from graphmem.resolve import make_options
from graphmem.schedule import Schedule
from graphmem.trace.inputs import as_call
from graphmem.trace.lazy import materialized
from graphmem.trace.run import trace_model

ROWS = 8192


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 512), nn.Linear(512, 64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(torch.nn.functional.gelu(self.up(x)))
        return y


class Stack(nn.Module):
    def __init__(self, depth: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _plan(budget: str, **others: Any) -> Plan:
    spec = graphmem.spec(f"{ROWS}x64")
    return graphmem.plan(Stack(), spec, budget=budget, seconds=300, **others)


@pytest.fixture(scope="module")
def found() -> Plan:
    return _plan("150MiB", gpus=1, enough=4)


def test_all_that_is_told_fits_and_is_what_analyze_gives(found: Plan) -> None:
    assert found.searched.fitting
    for one in found.searched.fitting:
        changed = {k: v for t in one.techniques for k, v in t.change.items()}
        report = graphmem.analyze(Stack(), graphmem.spec(f"{ROWS}x64"), **changed)
        assert report.peak.allocated_bytes == one.peak.allocated_bytes
        assert one.peak.reserved_bytes is not None
        assert one.peak.reserved_bytes <= 150 << 20


def test_what_the_run_lacks_as_it_is_is_what_analyze_says(found: Plan) -> None:
    own = graphmem.analyze(Stack(), graphmem.spec(f"{ROWS}x64")).fits("150MiB")
    assert found.searched.base.fit.headroom_bytes == own.headroom_bytes < 0


def test_the_cheapest_come_first_and_none_has_more_than_it_needs(found: Plan) -> None:
    fitting = found.searched.fitting
    worst = [max(t.loses for t in one.techniques) for one in fitting]
    assert worst == sorted(worst)
    names = [frozenset(t.name for t in one.techniques) for one in fitting]
    assert not any(one < other for one in names for other in names)


def test_fewer_blocks_are_checkpointed_where_they_suffice(found: Plan) -> None:
    named = [t for one in found.searched.fitting for t in one.techniques]
    fewer = [t for t in named if t.name.endswith("of 6 blocks")]
    assert fewer
    assert fewer[0].change["checkpoint"].startswith("layers.")


def test_a_run_that_fits_is_left_as_it_is() -> None:
    plan = _plan("1GiB")
    assert plan
    assert plan.searched.fitting == ()
    assert "It fits: nothing has to be changed" in str(plan)


def test_where_nothing_fits_it_says_how_far_the_best_is() -> None:
    spec = graphmem.spec(f"{ROWS}x64")
    plan = graphmem.plan(Stack(), spec, budget="44MiB", gpus=1, seconds=0)
    assert not plan
    assert len(plan.searched.others) == 1  # one is tried in any case
    assert plan.to_dict()["nearest"]["headroom_bytes"] < 0
    assert "Nothing that was tried fits; the nearest is" in str(plan)


def test_a_budget_below_the_parameters_is_one_line() -> None:
    plan = _plan("256kB", gpus=1)
    assert not plan
    assert plan.searched.others == ()
    alone = 6 * (2 * 64 * 512 + 512 + 64) * 4  # Stack's layers: 1,586,688 B
    assert plan.standing_bytes == alone
    text = " ".join(str(plan).split())
    assert "can make it fit: parameters and buffers alone take 1.51 MiB" in text


def test_micro_batches_are_of_a_batch_that_may_be_cut() -> None:
    plan = _plan("150MiB", batch=ROWS, gpus=1, enough=1)
    assert plan.searched.fitting[0].techniques[0].name.endswith("micro-batches")


def test_an_inference_is_refused() -> None:
    with pytest.raises(UsageError, match="it makes trainings fit"):
        _plan("1GiB", mode="inference")


def test_every_candidate_has_its_own_file() -> None:
    files = [candidate.__module__ for candidate in CANDIDATES]
    assert len(set(files)) == len(files)


def test_the_command_line_has_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    subject = "tests/plans/factories.py:stack"
    line = ["plan", subject, "--batch", "8192", "--budget", "150MiB", "--enough", "1"]
    assert main(line) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert any(text.startswith("1. --batch ") for text in lines)
    assert max(len(text) for text in lines) <= 80
    assert main([*line[:2], "--budget", "1MiB", "--batch", "8"]) == ExitCode.FAILED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "into what? add --device GPU, or --budget"),
        (["--budget", "1GiB", "--gpus", "0"], "'0' is not a whole number of 1 or more"),
        (["--budget", "1GiB", "--mode", "inference"], "it makes trainings fit"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "tests/plans/factories.py:stack", *arguments]) == ExitCode.UNUSABLE
    assert message in capsys.readouterr().err


def test_with_several_gpus_the_run_as_it_is_has_the_buckets_of_ddp() -> None:
    spec = graphmem.spec(f"{ROWS}x64")
    plan = _plan("150MiB", gpus=2, enough=1)
    report = graphmem.analyze(Stack(), spec, ddp=True, ranks=2)
    assert plan.searched.base.peak.allocated_bytes == report.peak.allocated_bytes
    assert "As it is, one of 2 under DistributedDataParallel, it takes" in " ".join(
        str(plan).split()
    )


def test_an_option_that_ddp_does_not_go_with_is_named() -> None:
    with pytest.raises(UsageError, match="ddp: not simulated with chunked loss"):
        _plan("150MiB", gpus=2, chunked_loss=2)


def test_a_package_that_is_missing_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = "needs peft: pip install 'graphmem[peft]'"
    monkeypatch.setattr("graphmem.plans.search.missing", lambda package: lacking)
    plan = _plan("24MiB", gpus=1, enough=1)
    failed = plan.to_dict()["failed"]
    assert [line["techniques"] for line in failed if line["error"] == lacking] == [
        ["LoRA"],
        ["LoRA on 8 bits"],
        ["QLoRA"],
    ]
    assert f"LoRA and 2 more: {lacking}" in " ".join(str(plan).split())


def test_each_loss_has_its_share_of_the_time() -> None:
    """A trace takes ten seconds of the clock: fifty are five of them, of one loss each."""
    now = [0.0]
    spec = graphmem.spec(f"{ROWS}x64")

    def trace(changed: Options, parts: int) -> Schedule:
        now[0] += 10
        call = as_call(spec, None)
        model = Stack()
        with materialized(model, call):
            return trace_model(model, call, changed, None, changed.optimizer).schedule

    memory = Memory(make_options(), 150 << 20)
    plan = made("Stack", trace, memory, 1, None, 99, 50, clock=lambda: now[0])
    tried = [*plan.searched.fitting, *plan.searched.others]
    assert len({max(t.loses for t in one.techniques) for one in tried}) >= 3
    assert now[0] <= 60  # the last begins at 50
