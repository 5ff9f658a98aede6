"""graphmem check."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import graphmem
from graphmem import collector
from graphmem.commands.arguments import add_run, add_subject
from graphmem.commands.given import analyzed, is_report, read
from graphmem.commands.max_batch import add_budget
from graphmem.commands.options_table import parsed
from graphmem.commands.output import REPORT_KINDS, add_output, kind_of, write
from graphmem.commands.parser import Parser
from graphmem.commands.progress import Progress
from graphmem.commands.serving import add_serving
from graphmem.errors import ExitCode, GraphmemError, InvariantError, UsageError, one_line
from graphmem.options import nearest, parse_bytes

if TYPE_CHECKING:
    from graphmem.checks import Baseline, Checked, Growth, Limits, Outcome
    from graphmem.report import Report


class Check:
    """Whether models keep within their budgets, for CI: exit code 1 with the reasons if not.

    Of a SUBJECT (or a report.json) with --budget, --device or --baseline; without one, of all
    models in [tool.graphmem] of pyproject.toml.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        _add_analysis(parser, optional=True)
        group = parser.add_argument_group("limits")
        add_budget(group)
        group.add_argument(
            "--allowed-growth",
            metavar="GROWTH",
            help="how much the peak may grow over the baseline's, such as 2%% or 100MiB",
        )
        group.add_argument(
            "--baseline", metavar="DIR", help="the folder with the reports to compare with"
        )
        group.add_argument(
            "--update-baseline", action="store_true", help="keep the reports as the new baseline"
        )
        group = parser.add_argument_group("settings")
        group.add_argument(
            "--config",
            metavar="FILE",
            help="a pyproject.toml; by default the nearest with a table [tool.graphmem]",
        )
        group.add_argument(
            "--only",
            action="append",
            default=[],
            metavar="NAME",
            help="a model of the table; may be repeated",
        )
        group = add_output(parser, REPORT_KINDS)
        group.add_argument("--junit", metavar="FILE", help="also write JUnit XML")
        group.add_argument("--sarif", metavar="FILE", help="also write SARIF 2.1.0")

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Check and print."""
        kind = kind_of(arguments.format, arguments.output, REPORT_KINDS)
        asked = _of_subject(arguments) if arguments.subject else _of_table(arguments)
        if arguments.update_baseline and asked.baseline is None:
            raise UsageError(
                "--update-baseline: in which folder? add --baseline DIR, or baseline = 'DIR' to "
                "[tool.graphmem]"
            )
        with collector.off(), contextlib.chdir(asked.home):
            outcomes = tuple(_outcomes(asked, update=arguments.update_baseline))
        _write(outcomes, asked, kind, arguments)
        if any(outcome.is_unusable for outcome in outcomes):
            return ExitCode.UNUSABLE
        return ExitCode.OK if all(outcomes) else ExitCode.FAILED


def _add_analysis(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """What ``graphmem analyze`` takes but for its output."""
    add_subject(parser, optional=optional)
    add_run(parser)
    parser.add_argument(
        "--target",
        help="cuda (default), cpu, or onnxruntime (default for inference of a model.onnx)",
    )
    add_serving(parser)


def _analysis_parser() -> argparse.ArgumentParser:
    parser = Parser(add_help=False, allow_abbrev=False)
    _add_analysis(parser)
    return parser


# -- what is asked


@dataclass(frozen=True, slots=True)
class _Job:
    """A model to check; ``place`` is the file and line that set it up."""

    name: str
    subject: str
    limits: Limits
    report: Callable[[], Report]
    place: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """All models, the baseline, and the folder that their paths start from."""

    jobs: tuple[_Job, ...]
    baseline: Baseline | None
    home: Path


def _of_subject(arguments: argparse.Namespace) -> _Asked:
    """The one SUBJECT of the command line."""
    from graphmem.checks import Limits

    for option in ("config", "only"):
        if getattr(arguments, option):
            raise UsageError(f"--{option}: is for the models of a table; leave SUBJECT out")
    growth = _growth(arguments)
    limits = Limits(_budget(arguments), arguments.device, growth)
    if limits.budget is None and limits.device is None and arguments.baseline is None:
        raise UsageError("check for what? add --budget SIZE, --device GPU or --baseline DIR")
    if growth is not None and arguments.baseline is None:
        raise UsageError("--allowed-growth: over what? add --baseline DIR")
    job = _Job(arguments.subject, arguments.subject, limits, partial(_report, arguments))
    return _Asked((job,), _baseline(arguments.baseline), Path())


def _of_table(arguments: argparse.Namespace) -> _Asked:
    """The models of a pyproject.toml."""
    from graphmem.checks import find_settings, read_settings

    parser = _analysis_parser()
    _refuse_run_options(parser, arguments)
    path = Path(arguments.config) if arguments.config else find_settings(Path.cwd())
    settings = read_settings(Path(os.path.relpath(path)))
    for name in arguments.only:
        known = [model.name for model in settings.models]
        if name not in known:
            raise UsageError(
                f"--only {name}: {settings.file} has {', '.join(known)}{nearest(name, known)}"
            )
    chosen = [m for m in settings.models if not arguments.only or m.name in arguments.only]
    folder = arguments.baseline or settings.baseline
    jobs = tuple(_job(parser, model, arguments) for model in chosen)
    return _Asked(jobs, _baseline(folder), settings.file.resolve().parent)


def _job(parser: argparse.ArgumentParser, model: Checked, arguments: argparse.Namespace) -> _Job:
    options = parsed(parser, model.subject, model.options, model.where)
    budget, growth = _budget(arguments), _growth(arguments)
    limits = replace(
        model.limits,
        budget=model.limits.budget if budget is None else budget,
        growth=model.limits.growth if growth is None else growth,
    )
    place = model.file.as_posix(), model.line
    return _Job(model.name, model.subject, limits, partial(_report, options), place)


def _refuse_run_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """How a model is run stands in its table, not on the command line."""
    defaults = vars(parser.parse_args(["subject"]))
    for name, default in defaults.items():
        if name != "subject" and getattr(arguments, name) != default:
            raise UsageError(
                f"--{name.replace('_', '-')}: of which SUBJECT? Options of the models in "
                "pyproject.toml stand there"
            )


def _budget(arguments: argparse.Namespace) -> int | None:
    text = arguments.budget
    return None if text is None else parse_bytes(text, "--budget")


def _growth(arguments: argparse.Namespace) -> Growth | None:
    from graphmem.checks import parse_growth

    text = arguments.allowed_growth
    return None if text is None else parse_growth(text, "--allowed-growth")


def _baseline(folder: str | Path | None) -> Baseline | None:
    from graphmem.checks import Baseline

    return None if folder is None else Baseline(Path(folder).resolve())


# -- the work


def _report(arguments: argparse.Namespace) -> Report:
    """The report of a SUBJECT, analyzed or read."""
    subject = arguments.subject
    return read(subject) if is_report(subject) else analyzed(subject, arguments)


def _outcomes(asked: _Asked, *, update: bool) -> Iterator[Outcome]:
    with Progress(len(asked.jobs), "models") as progress:
        for job in asked.jobs:
            yield _outcome(job, asked.baseline, update=update)
            progress.step(job.name)


def _outcome(job: _Job, baseline: Baseline | None, *, update: bool) -> Outcome:
    """What became of a model; one that can't be analyzed does not stop the others."""
    from graphmem.checks import failed, judge

    try:
        report = job.report()
        before = None if baseline is None else baseline.read(job.name)
        outcome = judge(job.name, report, job.limits, before, judges_growth=not update)
        if update and baseline is not None:
            baseline.write(job.name, report)
    except InvariantError as error:
        return failed(job.name, job.subject, f"a bug of graphmem, please report it: {error}")
    except GraphmemError as error:
        return failed(job.name, job.subject, one_line(error))
    return outcome


def _write(
    outcomes: Sequence[Outcome], asked: _Asked, kind: str, arguments: argparse.Namespace
) -> None:
    from graphmem.render import check, junit, sarif

    rows = [outcome.to_dict() for outcome in outcomes]
    shown = {"table": check.as_text, "markdown": check.as_markdown, "json": check.as_json}
    write(shown[kind](rows), arguments.output)
    if arguments.junit is not None:
        write(junit.as_junit(rows), arguments.junit)
    if arguments.sarif is not None:
        places = {job.name: job.place for job in asked.jobs if job.place is not None}
        write(sarif.as_sarif(rows, places, graphmem.__version__), arguments.sarif)
    if arguments.update_baseline and asked.baseline is not None:
        folder = os.path.relpath(asked.baseline.folder)
        print(f"graphmem: the baseline is in {folder}", file=sys.stderr)
