"""What graphmem says of many .onnx files: a table of inference, training and ONNX Runtime's truth.

    python -m tools.onnx_sweep FOLDER... [--default-dim 64] [--jobs 2] [--only PART]

The folders hold .onnx files, or wheels that do (``pip download --no-deps silero-vad==6.2.3 ...``);
the light models of the onnx package are always among them. For each file: nodes; parameters;
the peak of an inference under ONNX Runtime's plan and under CUDA; the peak of a training on
CUDA; and how far ``graphmem verify`` is from ONNX Runtime's own profile (the larger of requested
and in-use bytes, first and later runs). Lines that say why there is no number stand below.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx
from tabulate import tabulate

from graphmem import cli
from tools.ort_sweep import SIZES, model_files, worst_difference

_COMMANDS: dict[str, tuple[str, ...]] = {
    "inference, ONNX Runtime": ("analyze", "--target", "onnxruntime"),
    "inference, CUDA": ("analyze", "--mode", "inference", "--target", "cuda"),
    "training, CUDA": ("analyze", "--mode", "training", "--target", "cuda"),
    "verify": ("verify", "--target", "onnxruntime"),
}
"""The columns, and the command that each is made with."""


@dataclass(frozen=True)
class Answer:
    """What one command said: its JSON, or the line (``crash: ...`` if none) that says why not."""

    report: dict[str, object] | None
    line: str = ""

    @property
    def crashed(self) -> bool:
        """True if it ended with a traceback, which no file may cause."""
        return self.line.startswith("crash: ")


@dataclass(frozen=True)
class Swept:
    """One file with its answers, one for each of the columns."""

    name: str
    nodes: int
    answers: dict[str, Answer]


def main() -> int:
    """Print the table and the lines below it; 1 if a command crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--default-dim", default="64")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="part of the names of the files to take")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        files = [
            f for f in model_files(arguments.folders, Path(scratch)) if arguments.only in str(f)
        ]
        with ProcessPoolExecutor(
            arguments.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1
        ) as pool:
            swept = list(pool.map(partial(sweep, default_dim=arguments.default_dim), files))
    print(table(swept))
    return int(any(answer.crashed for file in swept for answer in file.answers.values()))


def sweep(file: Path, default_dim: str) -> Swept:
    """All commands on one file."""
    sizes = SIZES.get(file.stem, ("--default-dim", default_dim))
    nodes = len(onnx.load(file, load_external_data=False).graph.node)
    answers = {
        column: ask([command, str(file), *options, *sizes, "--format", "json"])
        for column, (command, *options) in _COMMANDS.items()
    }
    return Swept(file.stem, nodes, answers)


def ask(argv: list[str], run: Callable[[list[str]], int] = cli.main) -> Answer:
    """The answer of a command line of graphmem, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run(argv)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Answer(
            None, f"crash: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        )
    if out.getvalue():
        return Answer(json.loads(out.getvalue()))
    return Answer(None, (err.getvalue().strip().splitlines() or ["crash: no output"])[-1])


def table(swept: list[Swept]) -> str:
    """The table, then for each number that is missing the line that says why."""
    rows = [
        [file.name, f"{file.nodes:,}", _parameters(file)]
        + [_cell(column, file.answers[column]) for column in _COMMANDS]
        for file in swept
    ]
    head = ("file", "nodes", "parameters", *_COMMANDS)
    aligned = ("left", *["right"] * (len(head) - 1))
    lines = [
        f"{file.name}, {column}: {answer.line}"
        for file in swept
        for column, answer in file.answers.items()
        if answer.report is None
    ]
    text = tabulate(rows, head, tablefmt="github", disable_numparse=True, colalign=aligned)
    return "\n".join([text, *lines])


def _parameters(file: Swept) -> str:
    """Elements of the file's own weights, as PyTorch would train them."""
    report = file.answers["training, CUDA"].report or file.answers["inference, CUDA"].report
    return "" if report is None else f"{report['subject']['parameters']:,}"  # type: ignore[index]


def _cell(column: str, answer: Answer) -> str:
    if answer.report is None:
        return "crash" if answer.crashed else "no"
    if column == "verify":
        return f"{worst_difference(answer.report):.3%}"  # type: ignore[arg-type]
    return f"{answer.report['peak']['allocated_bytes']:,}"  # type: ignore[index]


if __name__ == "__main__":
    sys.exit(main())
