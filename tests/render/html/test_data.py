"""What the page is made of: the history in columns, and a template that nothing breaks out of."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import nn

import graphmem
from graphmem.errors import UsageError
from graphmem.render.html.data import history_data
from graphmem.render.palette import STACK
from graphmem.report import Report, read_report
from graphmem.report.history import History, Moment, Tensor

MIB = 2**20


def _expanded(runs: list[int]) -> list[int]:
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return [value for value, count in pairs for _ in range(count)]


def _embedded(page: str, name: str) -> Any:
    found = re.search(f'<script type="application/json" id="{name}-json">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def test_the_columns_are_the_history(convnet: Report) -> None:
    history = convnet.history
    data = history_data(history)

    def texts(places: list[int]) -> list[str | None]:
        return [None if place < 0 else data["strings"][place] for place in places]

    moments = history.moments
    for name in ("phase", "op", "module", "source"):
        assert texts(_expanded(data["moments"][name])) == [getattr(m, name) for m in moments]
    assert _expanded(data["moments"]["step"]) == [m.step for m in moments]
    assert _expanded(data["moments"]["scratch"]) == [m.scratch_bytes for m in moments]
    reserved = list(accumulate(_expanded(data["moments"]["reserved"])))
    assert reserved == [m.reserved_bytes for m in moments]
    for at, name in enumerate(STACK):
        held = tuple(accumulate(_expanded(data["held"][at])))
        assert held == history.categories[name]
    tensors = data["tensors"]
    assert tensors["bytes"] == [t.bytes for t in history.tensors]
    assert texts(tensors["name"]) == [t.name for t in history.tensors]
    assert [STACK[at] for at in tensors["category"]] == [t.category for t in history.tensors]
    assert history.memory is not None
    assert sum(data["memory"]["piece"]) == sum(s.bytes for s in history.memory.segments)


def test_the_report_in_the_page_is_its_json(convnet: Report) -> None:
    assert _embedded(convnet.to_html(), "report") == convnet.to_dict()


def test_names_that_look_like_markup_stay_text() -> None:
    model = nn.Sequential()
    evil = "</script><script>alert(1)</script><b>$style &amp; <!--"
    model.add_module(evil.replace(".", ""), nn.Linear(10, 10))
    report = graphmem.analyze(model, torch.zeros(2, 10))
    subject = replace(report.subject, name=evil)
    page = replace(report, subject=subject).to_html()
    assert "alert(1)</script>" not in page
    assert "<b>" not in page
    assert _embedded(page, "report")["subject"]["name"] == evil
    assert any(evil.replace(".", "") in text for text in _embedded(page, "history")["strings"])


def test_the_page_has_no_address_of_the_network(convnet: Report) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", convnet.to_html()))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a namespace; nothing is there to load


def test_a_report_from_a_file_has_no_page_and_says_so(convnet: Report) -> None:
    read = read_report(json.dumps(convnet.to_dict()), "x.json")
    with pytest.raises(UsageError, match="read from a file"):
        read.to_html()


def long_history(operations: int) -> History:
    """A step of many operations: each makes a tensor, which a later one reads and frees."""
    tensors = [
        Tensor(
            bytes=MIB + 512 * (at % 977),
            requested_bytes=MIB + 512 * (at % 977),
            category=("saved_for_backward", "temporaries", "gradients")[at % 3],
            shape=(at % 64 + 1, 4096),
            dtype="float32",
            op=f"aten.operator_{at % 60}",
            module=f"model.layers.{at // 200}.module_{at % 20}",
            source=f"package/models/modeling_{at % 7}.py:{at % 400}",
            name=None,
            born=at,
            last_use=min(operations - 1, at + at * 7919 % 900),
            freed=None if at % 1000 == 0 else min(operations - 1, at + at * 7919 % 1000),
            stream=0,
        )
        for at in range(operations)
    ]
    change = {name: [0] * (operations + 1) for name in STACK}
    for tensor in tensors:
        change[tensor.category][tensor.born] += tensor.bytes
        if tensor.freed is not None:
            change[tensor.category][tensor.freed + 1] -= tensor.bytes
    held = {name: tuple(accumulate(values[:operations])) for name, values in change.items()}
    allocated = [sum(values) for values in zip(*held.values(), strict=True)]
    moments = tuple(
        Moment(
            index=at,
            step=1,
            phase="forward" if at < operations // 2 else "backward",
            op=tensors[at].op or "",
            module=tensors[at].module,
            source=tensors[at].source,
            allocated_bytes=allocated[at],
            reserved_bytes=max(allocated[: at + 1][-500:]) + MIB * (at % 50),
            scratch_bytes=0,
        )
        for at in range(operations)
    )
    return History(moments, tuple(tensors), allocated.index(max(allocated)), held, None)


def test_a_step_of_20_000_operations_is_a_file_below_5_mb(convnet: Report) -> None:
    history = long_history(20_000)
    page = replace(convnet, ask_history=lambda: history).to_html()
    assert len(page.encode()) < 5_000_000
