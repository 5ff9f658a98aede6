"""The zoo sweep: what ends a case, how a sweep goes on, its page; and a random sample of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from graphmem.errors import ValueNeededError
from graphmem.options import Mode
from graphmem.sources import InputSpec
from graphmem.sources.building import Built
from graphmem.sources.inputs import ModelInputs
from tools import zoo
from tools.sweeping.case import BuiltCase, outcome_of
from tools.sweeping.families import Family, drawn
from tools.sweeping.outcome import ModeOutcome, Outcome, failed, outcomes_in, ready_to_append
from tools.sweeping.processes import Ended, Limits, each_in_a_process, tell
from tools.sweeping.summary import rows, shares, summary

PAGE = Path(__file__).parents[2] / "docs/zoo.md"
LIMITS = Limits(seconds=3.0, nbytes=800 * 2**20)


def work(case: str) -> str:
    """What a case of this name does in its process."""
    if case == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == "computes":
        while True:
            pass
    if case == "grows":
        kept = b"x" * (2 * LIMITS.nbytes)
        time.sleep(600)
        return str(len(kept))
    if case == "tells":
        tell("so far")
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == "takes back":
        tell("so far")
        tell(None)
        os.kill(os.getpid(), signal.SIGSEGV)
    print("this goes nowhere")
    return f"{case} is fine"


def test_a_case_that_dies_hangs_or_grows_does_not_stop_the_others() -> None:
    cases = ["a", "dies", "b", "computes", "grows", "c"]
    ended = {one.case: one for one in each_in_a_process(cases, work, LIMITS, jobs=2)}
    assert {name: one.line for name, one in ended.items() if one.line} == {
        name: f"{name} is fine" for name in "abc"
    }
    assert {name: one.kind for name, one in ended.items() if one.kind} == {
        "dies": "crash",
        "computes": "timeout",
        "grows": "out of memory",
    }
    assert ended["dies"].detail == f"exit code {-signal.SIGSEGV}"


def test_what_a_case_told_last_is_known_where_it_ends_without_a_line() -> None:
    cases = ["a", "dies", "tells", "takes back"]
    ended = {one.case: one.told for one in each_in_a_process(cases, work, LIMITS, jobs=1)}
    assert ended == {"a": None, "dies": None, "tells": "so far", "takes back": None}


def test_what_libraries_print_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    list(each_in_a_process(["a"], work, LIMITS, jobs=1))
    assert capfd.readouterr() == ("", "")


def outcome(name: str, kind: str | None = None, line: str = "", **of: Any) -> Outcome:
    mode = ModeOutcome(1.5, None if kind else 1024, ("a size",), kind, line)
    modes = {m.value: mode for m in Mode}
    return Outcome(of.get("family", "timm"), name, of.get("version", "timm 1"), modes)


def test_a_line_is_read_as_it_was_written() -> None:
    one = outcome("resnet18")
    assert Outcome.from_line(one.to_line()) == one
    assert "\n" not in one.to_line()


def test_a_line_that_a_kill_cut_off_is_dropped_and_done_again(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "timm.jsonl"
    ready_to_append(file)
    file.write_text(outcome("a").to_line() + "\n" + outcome("b").to_line()[:20])
    assert [one.name for one in outcomes_in(file)] == ["a"]
    ready_to_append(file)
    assert file.read_text() == outcome("a").to_line() + "\n"


def family(case: Any, names: list[str]) -> Family:
    return Family("numbers", "torch", ("torch",), lambda: names, case, 1.0)


def linear(name: str) -> BuiltCase:
    def build(mode: Mode) -> Built:
        return nn.Linear(3, int(name)), ModelInputs((InputSpec((2, 3)),))

    return BuiltCase(name, build)


SWEEP = """
import sys
from pathlib import Path
from tests.tools.test_zoo import Limits, family, linear, zoo
names = sys.argv[2:]
zoo.sweep(family(linear, names), names, Path(sys.argv[1]), Limits(), 1)
"""


def run(*arguments: str) -> None:
    """In a process of its own: this one may have threads, and a fork copies none."""
    subprocess.run([sys.executable, *arguments], cwd=PAGE.parents[1], check=True)


def test_a_sweep_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    file = tmp_path / "numbers.jsonl"
    run("-c", SWEEP, str(file), "1", "2")
    before = file.read_text()
    run("-c", SWEEP, str(file), "1", "2", "3")
    assert file.read_text().startswith(before)
    assert sorted(one.name for one in outcomes_in(file)) == ["1", "2", "3"]
    assert all(one.ok for one in outcomes_in(file))


def test_a_sweep_that_is_killed_keeps_what_it_had(tmp_path: Path) -> None:
    """As a person kills it, in the middle: the next one does the rest, and nothing twice."""
    file = tmp_path / "numbers.jsonl"
    file.touch()
    names = [str(n) for n in range(1, 200)]
    command = [sys.executable, "-c", SWEEP, str(file), *names]
    running = subprocess.Popen(command, cwd=PAGE.parents[1])
    while file.read_text().count("\n") < 2 and running.poll() is None:
        time.sleep(0.05)
    running.kill()
    running.wait()
    done = [one.name for one in outcomes_in(file)]
    assert 2 <= len(done) < 199
    run("-c", SWEEP, str(file), *done, "500")
    assert [one.name for one in outcomes_in(file)] == [*done, "500"]


def test_lines_of_a_kind_of_error_are_forgotten_where_that_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "timm.jsonl"
    outcomes = [outcome("a"), outcome("b", "timeout"), outcome("c", "crash")]
    file.write_text("".join(one.to_line() + "\n" for one in outcomes))
    zoo.forget(file, {"timeout"})
    assert [one.name for one in outcomes_in(file)] == ["a", "c"]


def test_what_the_models_own_code_cannot_run_is_no_failure() -> None:
    def build(mode: Mode) -> Built:
        return nn.Linear(3, 4), ModelInputs((InputSpec((2, 5)),))

    one = outcome_of("numbers", "wide", "torch 2", lambda: BuiltCase("wide", build))
    assert {mode.kind for mode in one.modes.values()} == {"not runnable"}
    assert one.ok
    assert "mat1 and mat2 shapes cannot be multiplied" in one.modes["training"].line


def test_what_ends_the_models_own_run_is_no_failure() -> None:
    told: list[Outcome | None] = []

    def build(mode: Mode) -> Built:
        return nn.Linear(5, 4), ModelInputs((InputSpec((2, 5)),))

    whole = outcome_of("numbers", "wide", "v", lambda: BuiltCase("wide", build), tell=told.append)
    assert whole.ok
    first, after_first, second, after_second = told
    assert (after_first, after_second) == (None, None)
    assert first is not None
    assert second is not None
    assert second.modes["inference"] == whole.modes["inference"]
    family = Family("numbers", "pytest", ("pytest",), list, lambda _: None, 1.0)  # type: ignore
    for sent, left in ((first, {"inference", "training"}), (second, {"training"})):
        killed = Ended("wide", 9.0, None, "out of memory", "more than 5 GiB", sent.to_line())
        modes = Outcome.from_line(zoo.line_of(family, killed)).modes
        assert {name for name, mode in modes.items() if mode.kind == "not runnable"} == left
        assert modes["training"].line == "its own run on the CPU: more than 5 GiB"


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (ValueNeededError("a.py:3: a value"), "value needed", "a.py:3: a value"),
        (KeyError("x"), "traceback", "KeyError: 'x'"),
        (MemoryError(), "out of memory", "MemoryError"),
    ],
)
def test_an_error_has_a_kind_and_a_line(error: Exception, kind: str, line: str) -> None:
    found = failed(error, 1.0)
    assert (found.kind, found.line) == (kind, line)


def test_a_table_has_a_row_for_each_mode() -> None:
    table = list(rows([outcome("a"), outcome("b", "timeout", "more than 1 s")]))
    assert table[1] == ("timm", "a", "inference", True, 1.5, 1024, "a size", None, "")
    assert table[4][-2:] == ("timeout", "more than 1 s")
    assert len(table) == 1 + 4


def test_the_page_counts_by_family_and_lists_every_failure() -> None:
    found = [
        outcome("a"),
        outcome("b", "timeout", "more than 1 s"),
        outcome("c", "not runnable", "no | kernel"),
        outcome("d"),
        outcome("e", family="yolo", version="yolo 8"),
    ]
    page = summary(found, {"timm": 4, "yolo": 66})
    # 2 of the 3 that count: 66.67 %
    assert "| timm 1 | inference | 4 | 2 | 1 | 1 | 66.67% | 1.5 | 1.5 |" in page
    assert "| yolo 8 | training | 1 of 66 so far | 1 | 0 | 0 | 100.00% | 1.5 | 1.5 |" in page
    assert "timeout: 2." in page
    assert "| b | inference, training | timeout | more than 1 s |" in page
    assert "| c | inference, training |  | no \\| kernel |" in page


def test_the_page_keeps_what_it_says_of_libraries_that_were_not_swept_again() -> None:
    timm = [outcome("a"), outcome("b", "timeout", "more than 1 s"), outcome("c", "not runnable")]
    before = summary([*timm, outcome("d", "crash", family="yolo", version="yolo 8")], {"timm": 3})
    assert summary([], {}, before) == before
    again = [outcome("d", family="yolo", version="yolo 9"), outcome("e", family="g", version="g 2")]
    page = summary(again, {}, before)
    assert summary(timm, {"timm": 3}) == page.replace(
        """| yolo 9 | inference | 1 | 1 | 0 | 0 | 100.00% | 1.5 | 1.5 |
| yolo 9 | training | 1 | 1 | 0 | 0 | 100.00% | 1.5 | 1.5 |
| g 2 | inference | 1 | 1 | 0 | 0 | 100.00% | 1.5 | 1.5 |
| g 2 | training | 1 | 1 | 0 | 0 | 100.00% | 1.5 | 1.5 |
""",
        "",
    )


def test_the_counts_of_a_page_in_short() -> None:
    half = replace(outcome("b"), modes={**outcome("b").modes, "training": failed(KeyError(), 1.0)})
    found = [outcome("a"), half, outcome("c", family="yolo", version="yolo 8")]
    assert shares(summary(found, {"timm": 2, "yolo": 66})).splitlines() == [
        "| library | models | inference | training |",
        "|---|--:|--:|--:|",
        "| timm 1 | 2 | 100.00% | 50.00% |",
        "| yolo 8 | 1 of 66 so far | 100.00% | 100.00% |",
    ]


def test_the_page_of_the_docs_is_read_as_it_was_written() -> None:
    page = PAGE.read_text("utf-8")
    assert summary([], {}, page) == page


def test_a_page_is_written_over_the_one_that_stands(tmp_path: Path) -> None:
    page = tmp_path / "zoo.md"
    page.write_text(summary([outcome("a", family="other", version="other 1")], {}))
    (tmp_path / "torchvision.jsonl").write_text(outcome("b", family="torchvision").to_line() + "\n")
    command = ["summary", "--out", str(tmp_path), "--write", str(page), "--families"]
    assert zoo.main([*command, "timm"]) == 0
    assert "timm 1" not in page.read_text()
    assert zoo.main([*command, "torchvision"]) == 0
    assert "| other 1 | training |" in page.read_text()
    assert "| timm 1 | training |" in page.read_text()


def test_a_random_sample_of_sixty_models_is_analyzed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What fails must stand among the failures that the page lists, of the last full sweep.

    GRAPHMEM_ZOO_SEED repeats a sample.
    """
    seed = int(os.environ.get("GRAPHMEM_ZOO_SEED") or random.SystemRandom().randrange(10**6))
    with capsys.disabled():
        print(f"\nzoo sample: GRAPHMEM_ZOO_SEED={seed}")
    run("-m", "tools.zoo", "sample", "--seed", str(seed), "--out", str(tmp_path))
    page, lost = PAGE.read_text("utf-8"), []
    for name, names in drawn(seed).items():
        found = list(outcomes_in(tmp_path / f"{name}.jsonl"))
        assert {one.name for one in found} == set(names)
        lost += [one for one in found if not one.ok and f"| {one.name} |" not in page]
    assert not lost, f"seed {seed}: " + "; ".join(one.to_line() for one in lost)
