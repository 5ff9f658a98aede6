"""graphmem diff."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from graphmem.commands.arguments import add_inputs, add_run
from graphmem.commands.given import analyzed, is_report, read
from graphmem.commands.output import REPORT_KINDS, add_output, kind_of, write
from graphmem.commands.serving import add_serving
from graphmem.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from graphmem.diffs import Diff

_OWN = ("base", "head", "format", "output")


class DiffCommand:
    """What a change did to the memory, layer by layer, for a code review.

    BASE and HEAD are reports of graphmem analyze -o report.json, or SUBJECTs as graphmem analyze
    takes them. A SUBJECT is analyzed with the options that are given here; a report is read as
    it is. The exit code is 0 also where they differ: graphmem check is for budgets.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.add_argument("base", metavar="BASE", help="before: a report.json, or a SUBJECT")
        parser.add_argument("head", metavar="HEAD", help="after: a report.json, or a SUBJECT")
        add_inputs(parser)
        add_run(parser)
        parser.add_argument("--target", help="cuda (default), cpu or onnxruntime")
        add_serving(parser)
        add_output(parser, REPORT_KINDS)
        self._defaults = {
            action.dest: (action.default, action.option_strings)
            for action in parser._actions
            if action.dest not in (*_OWN, "help")
        }

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Compare and print."""
        from graphmem.diffs import compare

        kind = kind_of(arguments.format, arguments.output, REPORT_KINDS)
        names = (arguments.base, arguments.head)
        if all(map(is_report, names)):
            self._refuse_options(arguments)
        # What can be read is read first: its mistakes are told before anything is traced.
        found = {name: read(name) for name in names if is_report(name)}
        base, head = (found.get(name) or analyzed(name, arguments) for name in names)
        write(_rendered(compare(base, head, names), kind), arguments.output)
        return ExitCode.OK

    def _refuse_options(self, arguments: argparse.Namespace) -> None:
        """Nothing is analyzed, so no option of an analysis can be meant."""
        for name, (default, options) in self._defaults.items():
            if getattr(arguments, name) != default:
                raise UsageError(
                    f"{options[0]}: {arguments.base} and {arguments.head} are reports, which are "
                    "read as they are; it is for a SUBJECT such as hf:DIR or file.py:factory"
                )


def _rendered(diff: Diff, kind: str) -> str:
    from graphmem.render.diff import as_json, as_text

    if kind == "json":
        return as_json(diff)
    if kind == "markdown":
        from graphmem.render.diff_markdown import as_markdown

        return as_markdown(diff)
    return as_text(diff)
