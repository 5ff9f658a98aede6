"""Cases and chunks of them."""

from __future__ import annotations

import pytest

from graphmem.errors import UsageError
from graphmem.sweeps import cases
from graphmem.sweeps.chunks import MOST_CASES, chunks


def test_a_grid_has_every_combination() -> None:
    made = cases(["a.py:m", "timm:x"], batch=[1, 2, 4], precision=[None, "bf16"], device="L4")
    assert len(made) == 2 * 3 * 2
    assert len(set(made)) == len(made)
    assert {case.device for case in made} == {"L4"}


def test_a_case_asks_for_the_mode_that_its_subject_has() -> None:
    assert [c.runs_as for c in cases(["m.onnx", "m.py:f"])] == ["inference", "training"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch": 0}, "batch: 0 is not a whole number"),
        ({"seq": 2.5}, "seq: 2.5 is not a whole number"),
        ({"precision": "bf17"}, "did you mean 'bf16'"),
        ({"device": "A100-80G"}, "A100-80GB"),
        ({"optimiser": "sgd"}, "no option 'optimiser'; did you mean 'optimizer'"),
        ({"target": "onnxruntime"}, "use cuda or cpu"),
        ({"headroom": "much"}, "headroom"),
    ],
)
def test_what_cant_be_used_is_told_before_anything_runs(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        cases("a.py:m", **values)  # type: ignore[arg-type]


def test_cases_that_differ_in_their_batch_go_together() -> None:
    made = chunks(cases("a.py:m", batch=range(1, 20), device=["L4", "T4"]))
    assert [len(one.cases) for one in made] == 2 * [MOST_CASES, MOST_CASES, 3]
    assert {one.axis for one in made} == {"batch"}
    assert all(one.sizes == tuple(range(1, 20)) for one in made)
    assert len({one.lane for one in made}) == 2


def test_where_the_batch_is_one_they_go_together_by_their_sequence() -> None:
    made = chunks(cases("a.py:m", batch=4, seq=[128, 64, 256]))
    assert [one.axis for one in made] == ["seq"]
    assert [case.seq for case in made[0].cases] == [64, 128, 256]


def test_a_default_that_is_given_makes_no_other_case() -> None:
    plain = cases("a.py:m")
    assert cases("a.py:m", optimizer="adamw", steps=2, target="cuda", headroom="0 B") == plain
    assert cases("a.py:m", steps=3) != plain


def test_what_differs_in_more_goes_alone() -> None:
    made = chunks(cases(["a.py:m", "b.py:m"], precision=["fp32", "bf16"]))
    assert [(len(one.cases), one.axis, one.lane) for one in made] == 4 * [(1, None, None)]


def test_several_processes_may_share_a_group() -> None:
    made = chunks(cases("a.py:m", batch=range(1, 33)), lanes=2)
    assert len({one.lane for one in made}) == 2


def test_a_case_may_have_frozen_parts_adapters_and_packed_weights() -> None:
    lora = {"r": 4, "targets": ["query", "value"]}
    (made,) = cases("m:f", freeze=["a", "b"], lora=lora, quantize="nf4")
    assert dict(made.options) == {
        "freeze": "a,b",
        "lora": "r=4,targets=query+value",
        "quantize": "nf4",
    }
