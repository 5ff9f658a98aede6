"""Analyzes every model of the libraries that people use, in training and in inference.

    python -m tools.zoo sweep timm torchvision --out FOLDER [--jobs 2] [--only PART] [--again KIND]
    python -m tools.zoo sample --out FOLDER [--jobs 2] [--seed N]
    python -m tools.zoo table --out FOLDER > table.csv
    python -m tools.zoo verify --count 40 --seed N --out FOLDER --write docs/verified.md
    python -m tools.zoo summary --out FOLDER --write docs/zoo.md

A case is a model; each has a process, a time and a memory of its own. The folder gets a file for
each family with one JSON line a case. A sweep that was stopped goes on where it was: what has a
line is not done again, unless ``--again`` names its kind of error.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from graphmem.options import Mode
from tools.sweeping.case import outcome_of
from tools.sweeping.families import FAMILIES, Family, drawn, mode_drawn
from tools.sweeping.outcome import ModeOutcome, Outcome, outcomes_in, ready_to_append
from tools.sweeping.processes import Ended, Limits, each_in_a_process, tell
from tools.sweeping.summary import rows, summary
from tools.sweeping.verified import compared, compared_in
from tools.sweeping.verified_page import Circumstances, page


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, prepare, run in COMMANDS:
        command = commands.add_parser(name)
        prepare(command)
        command.set_defaults(run=run)
    arguments = parser.parse_args(argv)
    code: int = arguments.run(arguments)
    return code


def _prepare_run(parser: argparse.ArgumentParser) -> None:
    limits = Limits()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=limits.seconds, help="limit of a case")
    parser.add_argument("--gib", type=float, default=limits.nbytes / 2**30, help="limit of a case")


def _prepare_sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("families", nargs="+", choices=list(FAMILIES), metavar="FAMILY")
    _prepare_run(parser)
    parser.add_argument("--only", default="", help="part of the names of the cases to take")
    parser.add_argument("--again", action="append", default=[], help="a kind of error to redo")


def _sweep(arguments: argparse.Namespace) -> int:
    for name in arguments.families:
        family = FAMILIES[name]
        if not family.installed:
            print(f"{name}: {family.package} is not installed: left out", file=sys.stderr)
            continue
        forget(arguments.out / f"{name}.jsonl", set(arguments.again))
        names = [case for case in family.names() if arguments.only in case]
        random.Random(0).shuffle(names)  # so that a sweep's beginning is a sample of the whole
        _swept(family, names, arguments)
    return 0


def _prepare_sample(parser: argparse.ArgumentParser) -> None:
    _prepare_run(parser)
    parser.add_argument("--seed", type=int, help="repeats a sample")


def _sample(arguments: argparse.Namespace) -> int:
    seed = _seed(arguments)
    for name, names in drawn(seed).items():
        _swept(FAMILIES[name], names, arguments, partial(mode_drawn, seed))
    return 0


def _prepare_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, help="repeats what is drawn")
    _prepare_run(parser)
    parser.set_defaults(jobs=1, seconds=300.0, gib=8.0)
    parser.add_argument("--write", type=Path, help="the page to write; else it is printed")


def _verify(arguments: argparse.Namespace) -> int:
    seed = _seed(arguments)
    families = [name for name in arguments.families if FAMILIES[name].installed]
    limits = _limits(arguments)
    file = arguments.out / f"verified-{seed}.jsonl"
    ready_to_append(file)
    found = list(compared_in(file))
    begun = sum(one.passed_over is None for one in found)
    tqdm.monitor_interval = 0
    counted = tqdm(total=arguments.count, initial=begun, desc="verify", disable=None)
    with file.open("a", encoding="utf-8") as out, counted:
        for one in compared(families, arguments.count, seed, limits, arguments.jobs, found):
            out.write(one.to_line() + "\n")
            out.flush()
            found.append(one)
            counted.update(one.passed_over is None)
    _put(page(found, _circumstances(families, seed, limits)), arguments.write)
    return int(not all(one.passes for one in found if one.passed_over is None))


def _circumstances(families: Sequence[str], seed: int, limits: Limits) -> Circumstances:
    versions = tuple(FAMILIES[name].version for name in families)
    cpu = torch.backends.cpu.get_cpu_capability()
    return Circumstances(seed, limits, torch.__version__, cpu, versions)


def _seed(arguments: argparse.Namespace) -> int:
    """The seed that is asked for, or a new one; it is printed either way."""
    given: int | None = arguments.seed
    seed = random.SystemRandom().randrange(10**6) if given is None else given
    print(f"--seed {seed}", file=sys.stderr)
    return seed


def _both_modes(name: str) -> tuple[Mode, ...]:
    return tuple(Mode)


def _swept(
    family: Family,
    names: list[str],
    arguments: argparse.Namespace,
    modes: Callable[[str], tuple[Mode, ...]] = _both_modes,
) -> None:
    file = arguments.out / f"{family.name}.jsonl"
    sweep(family, names, file, _limits(arguments), arguments.jobs, modes)


def _limits(arguments: argparse.Namespace) -> Limits:
    return Limits(arguments.seconds, int(arguments.gib * 2**30))


def sweep(
    family: Family,
    names: list[str],
    file: Path,
    limits: Limits,
    jobs: int,
    modes: Callable[[str], tuple[Mode, ...]] = _both_modes,
) -> None:
    """Run the cases that have no line in the file yet, and append theirs."""
    ready_to_append(file)
    family.warm()
    torch.set_num_threads(1)
    done = {outcome.name for outcome in outcomes_in(file)}
    left = [name for name in names if name not in done]
    tqdm.monitor_interval = 0  # it would be a thread, and a fork copies none
    work = partial(work_on, family, modes)
    begun = len(names) - len(left)
    counted = tqdm(total=len(names), initial=begun, desc=family.name, disable=None)
    with file.open("a", encoding="utf-8") as out, counted:
        for ended in each_in_a_process(left, work, limits, jobs):
            out.write(line_of(family, ended) + "\n")
            out.flush()
            counted.update()


def work_on(family: Family, modes: Callable[[str], tuple[Mode, ...]], name: str) -> str:
    """In a case's own process: its line."""
    make = partial(family.case, name)
    outcome = outcome_of(family.name, name, family.version, make, modes(name), _tell)
    return outcome.to_line()


def _tell(outcome: Outcome | None) -> None:
    tell(None if outcome is None else outcome.to_line())


def line_of(family: Family, ended: Ended) -> str:
    """The line of a case, also of one whose process could not write it."""
    if ended.line is not None:
        return ended.line
    if ended.told is not None:
        return Outcome.from_line(ended.told).ended_by(ended.detail).to_line()
    lost = ModeOutcome(round(ended.seconds, 3), kind=ended.kind, line=ended.detail)
    modes = {mode.value: lost for mode in Mode}
    return Outcome(family.name, ended.case, family.version, modes).to_line()


def forget(file: Path, kinds: set[str]) -> None:
    """Drop the lines of cases with an error of one of the kinds."""
    if not kinds or not file.exists():
        return
    kept = [
        outcome.to_line() + "\n"
        for outcome in outcomes_in(file)
        if not kinds & {mode.kind for mode in outcome.modes.values()}
    ]
    file.write_text("".join(kept), "utf-8")


def _prepare_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="the folder of a sweep")


def _prepare_summary(parser: argparse.ArgumentParser) -> None:
    _prepare_folder(parser)
    families = list(FAMILIES)
    parser.add_argument("--families", nargs="+", choices=families, default=families)
    parser.add_argument(
        "--write",
        type=Path,
        help="the page to write, else it is printed; what it says of other families stays",
    )


def _all_outcomes(folder: Path, families: Sequence[str] = tuple(FAMILIES)) -> list[Outcome]:
    files = (folder / f"{name}.jsonl" for name in families)
    return [outcome for file in files for outcome in outcomes_in(file)]


def _table(arguments: argparse.Namespace) -> int:
    csv.writer(sys.stdout).writerows(rows(_all_outcomes(arguments.out)))
    return 0


def _summary(arguments: argparse.Namespace) -> int:
    outcomes = _all_outcomes(arguments.out, arguments.families)
    swept = (FAMILIES[name] for name in dict.fromkeys(one.family for one in outcomes))
    totals = {family.name: len(family.names()) for family in swept if family.installed}
    before = _text_of(arguments.write)
    _put(summary(outcomes, totals, before), arguments.write)
    return 0


def _text_of(file: Path | None) -> str:
    """What stands in a page; nothing if there is none."""
    return file.read_text("utf-8") if file is not None and file.exists() else ""


def _put(text: str, file: Path | None) -> None:
    """Print a page, or write it."""
    if file is None:
        print(text, end="")
    else:
        file.write_text(text, "utf-8")


COMMANDS: tuple[
    tuple[
        str,
        Callable[[argparse.ArgumentParser], None],
        Callable[[argparse.Namespace], int],
    ],
    ...,
] = (
    ("sweep", _prepare_sweep, _sweep),
    ("sample", _prepare_sample, _sample),
    ("verify", _prepare_verify, _verify),
    ("table", _prepare_folder, _table),
    ("summary", _prepare_summary, _summary),
)


if __name__ == "__main__":
    sys.exit(main())
