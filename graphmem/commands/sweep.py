"""graphmem sweep."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from graphmem.commands.arguments import add_run, add_subject, positive, run_of
from graphmem.commands.output import add_output, kind_of, write
from graphmem.commands.progress import Progress
from graphmem.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from graphmem.sweeps import Case, Outcome

_KINDS = {".txt": "table", ".md": "markdown", ".json": "json"}
_SCHEMA = "graphmem.sweep/1"
_MOST_SIZES = 100_000


class Sweep:
    """The peaks of many batch sizes, sequence lengths, precisions and GPUs, and what fits.

    Answers are kept on disk: a sweep that was stopped goes on where it was, and one that was
    done is done at once, until the model's code or a library changes.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.conflict_handler = "resolve"  # the lists below take the place of single values
        add_subject(parser)
        add_run(parser)
        group = parser.add_argument_group("what is swept (lists; every combination is analyzed)")
        group.add_argument(
            "--batch", type=sizes, metavar="N,...", help="such as 1,2,4,8, 1:64 or 8:64:8"
        )
        group.add_argument("--seq", type=sizes, metavar="N,...", help="as --batch")
        group.add_argument("--precision", type=names, metavar="NAME,...", help="fp32, bf16, ...")
        group.add_argument("--device", type=names, metavar="GPU,...", help="A100-80GB,L4, ...")
        parser.add_argument("--target", default="cuda", help="cuda (default) or cpu")
        group = parser.add_argument_group("sweep")
        group.add_argument(
            "--jobs", type=positive, metavar="N", help="processes (the CPUs, where it helps)"
        )
        group.add_argument("--cache", metavar="DIR", help="where answers are kept (~/.cache)")
        group.add_argument("--no-cache", action="store_true", help="keep and take no answers")
        add_output(parser, _KINDS)

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Analyze and print."""
        from graphmem.sweeps import sweep

        kind = kind_of(arguments.format, arguments.output, _KINDS)
        cases = _cases(arguments)
        cache: dict[str, Any] = {"cache": None} if arguments.no_cache else {}
        if arguments.cache is not None:
            cache = {"cache": arguments.cache}
        outcomes: list[Outcome] = []
        with Progress(len(cases), "cases") as progress:
            for outcome in sweep(cases, jobs=arguments.jobs, **cache):
                outcomes.append(outcome)
                progress.step(_named(outcome.case))
        if all(outcome.answer is None for outcome in outcomes):
            raise UsageError(outcomes[0].error or f"{arguments.subject}: no answer")
        place = {case: number for number, case in enumerate(cases)}
        outcomes.sort(key=lambda outcome: place[outcome.case])
        write(_rendered(outcomes, kind), arguments.output)
        return ExitCode.OK


def _cases(arguments: argparse.Namespace) -> list[Case]:
    from graphmem.sweeps import cases

    if arguments.compile:
        raise UsageError("--compile is for graphmem analyze: a sweep has no two answers a case")
    if arguments.headroom is not None and arguments.device is None:
        raise UsageError("--headroom: of which GPU's memory? add --device")
    return cases(
        arguments.subject,
        batch=arguments.batch,
        seq=arguments.seq,
        precision=arguments.precision,
        device=arguments.device,
        mode=arguments.mode,
        task=arguments.task,
        inputs=tuple(arguments.input),
        dims=tuple(arguments.dim),
        default_dim=arguments.default_dim,
        rules=arguments.rules,
        target=arguments.target,
        **run_of(arguments),
    )


def _named(case: Case) -> str:
    parts = (case.precision, case.device, case.seq and f"seq {case.seq}")
    sized = case.batch and f"batch {case.batch}"
    return " ".join(str(part) for part in (*parts, sized) if part)


def _rendered(outcomes: list[Outcome], kind: str) -> str:
    from graphmem.render import sweep

    rows = [outcome.to_dict() for outcome in outcomes]
    if kind == "json":
        return json.dumps({"schema": _SCHEMA, "cases": rows}, indent=2) + "\n"
    return sweep.as_markdown(rows) if kind == "markdown" else sweep.as_text(rows)


def sizes(text: str) -> list[int]:
    """Sizes such as ``1,2,4``, ``1:64`` (both ends) or ``8:64:8`` (a step), and lists of them."""
    found: dict[int, None] = {}
    for part in text.split(","):
        numbers = [positive(number) for number in part.split(":")]
        first, last, step = (*numbers, *(numbers[0], 1)[len(numbers) - 1 :])[:3]
        if len(numbers) > 3 or last < first:
            raise argparse.ArgumentTypeError(f"{part!r} is no range such as 1:64 or 8:64:8")
        if (last - first) // step >= _MOST_SIZES:
            raise argparse.ArgumentTypeError(f"{part!r} has more than {_MOST_SIZES} sizes")
        found.update(dict.fromkeys(range(first, last + 1, step)))
    return list(found)


def names(text: str) -> list[str]:
    """Names with commas between them."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return found
