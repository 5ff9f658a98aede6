"""The parsers of the command line: the top one, that of each command, and all in one."""

from __future__ import annotations

import argparse
import inspect
import shutil
import textwrap
from typing import Any, NoReturn

import graphmem
from graphmem import as_text, commands
from graphmem.errors import UsageError

_MOST_WIDTH = 120


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the nearest match."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the arguments."""
        raise UsageError(message)

    def options(self) -> list[str]:
        """Every option that it takes, such as ``--batch``."""
        return [name for action in self._actions for name in action.option_strings]


def whole_parser() -> argparse.ArgumentParser:
    """One parser with all commands, as ``graphmem completion`` needs it."""
    parser = top_parser()
    commands_of = parser.add_subparsers(metavar="COMMAND")
    for name in commands.COMMANDS:
        command = commands.load(name)
        summary = (type(command).__doc__ or "").strip().splitlines()[0]
        own = commands_of.add_parser(name, help=summary, **described(command))
        prepare(own, command)
    return parser


def described(command: commands.Command) -> dict[str, Any]:
    """What a command's parser is made with."""
    text = inspect.cleandoc(type(command).__doc__ or "")
    return {"description": text, "allow_abbrev": False}


def prepare(parser: argparse.ArgumentParser, command: commands.Command) -> None:
    """The arguments of a command, and those of all."""
    command.prepare_parser(parser)
    group = parser.add_argument_group("what is shown")
    group.add_argument(
        "--unit", metavar="UNIT", help=f"of all sizes for people: {', '.join(as_text.UNITS)}"
    )
    told = group.add_mutually_exclusive_group()
    told.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    told.add_argument(
        "-v", "--verbose", action="store_true", help="how long it takes, and tracebacks of errors"
    )


def top_parser() -> Parser:
    """The parser of what stands before a command."""
    parser = Parser(
        prog="graphmem",
        description=graphmem.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="graphmem COMMAND [arguments]",
        epilog="\n".join(["commands:", *_summaries(), "", "graphmem COMMAND --help says more."]),
    )
    version = f"graphmem {graphmem.__version__}"
    parser.add_argument("--version", action="version", version=version)
    return parser


def _summaries() -> list[str]:
    """The first line of each command's docstring, as wide as the terminal."""
    texts = {name: type(commands.load(name)).__doc__ or "" for name in commands.COMMANDS}
    column = max(map(len, texts)) + 2
    width = min(shutil.get_terminal_size().columns, _MOST_WIDTH)
    return [
        textwrap.fill(
            text.strip().splitlines()[0],
            width,
            initial_indent=f"  {name:<{column}}",
            subsequent_indent=" " * (column + 2),
        )
        for name, text in texts.items()
    ]
