"""graphmem max-batch, through ``main``, and ``graphmem.max_batch``."""

from __future__ import annotations

import json

import pytest
from torch import nn

import graphmem
from graphmem.cli import main
from graphmem.errors import ExitCode

SUBJECT = "tests/sweeps/factories.py:plain"
RUN = ["max-batch", SUBJECT, "--budget", "40MiB"]


def test_a_table_and_a_plot_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(RUN) == ExitCode.OK
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == SUBJECT
    assert lines[2].startswith("The largest batch that fits into 40.00 MiB is ")


def test_json_has_what_the_contract_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--format", "json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert {"batch", "peak", "next", "limited_by", "curve"} <= found.keys()
    assert found["next"]["size"] == found["batch"] + 1
    assert found["peak"]["reserved_bytes"] <= found["allowed_bytes"] == 40 << 20
    assert found["limited_by"]["kind"] == "memory"
    for point in found["curve"]["points"]:
        assert sum(point["breakdown"].values()) == point["allocated_bytes"]


def test_markdown_has_the_plot_in_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--format", "markdown"]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert printed.startswith("## ")
    assert printed.count("```") == 2


def test_the_same_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    by_rows = graphmem.max_batch(model, graphmem.spec("1x64"), budget="40MiB")
    by_size = graphmem.max_batch(
        model, lambda n: graphmem.spec(f"{n}x64"), budget="40MiB", dim="rows", multiple_of=1
    )
    assert int(by_rows) == by_size.size > 1
    assert str(by_rows).startswith("Sequential\n\nThe largest batch that fits into 40.00 MiB is ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["max-batch", SUBJECT], "into what? add --device GPU"),
        ([*RUN, "--dim", "sqe"], "did you mean 'seq'?"),
        ([*RUN, "--dim", "seq"], "--seq needs a factory with a parameter 'seq'"),
        ([*RUN, "--dim", "a", "--dim", "b"], "one dimension is searched, not a, b"),
        ([*RUN, "--batch", "8"], "it is what is searched"),
        ([*RUN, "--compile"], "--compile is for graphmem analyze"),
        (["max-batch", SUBJECT, "--budget", "lots"], "--budget: 'lots' is not a size"),
        (["max-batch", SUBJECT, "--budget", "1KiB"], "parameters and buffers alone take"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.UNUSABLE
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert printed.err.count("\n") == 1


def test_where_no_batch_fits_it_says_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN[:3], "2MiB"]) == ExitCode.FAILED
    printed = capsys.readouterr().out
    assert "No batch fits into 2.00 MiB" in printed
    assert "too much" in printed
