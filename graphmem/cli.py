"""The command line: ``main(argv) -> int``, and nothing but arguments and errors."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import os
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from graphmem import as_text, commands
from graphmem.commands.console import CONSOLE, Verbosity
from graphmem.commands.parser import Parser, described, prepare, top_parser
from graphmem.errors import ExitCode, GraphmemError, InvariantError, UsageError, one_line
from graphmem.options import nearest


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: the arguments, without the program's name; None takes those of the process.

    Returns:
        0 if all is well, 1 if a verification failed, 2 if the command or the model can't
        be used; then one line on stderr says what, where and what to do.
    """
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except InvariantError as error:
        return _fail(f"a bug of graphmem, please report it: {error}")
    except GraphmemError as error:
        return _fail(one_line(error))
    except KeyboardInterrupt:
        return _fail("interrupted")
    except BrokenPipeError:
        sys.stderr.close()
        return ExitCode.OK


def entry() -> NoReturn:
    """The console script."""
    # What one analysis builds lives to its end: Python's collector would look at all of it again
    # and again. A trace still runs it where a step ends.
    gc.disable()
    _end(main())


def _end(code: int) -> NoReturn:
    """End the process as Python does, but leave what is in memory to the system.

    To take it apart takes half a second, and reads 126 MiB more of a CUDA build's libraries.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError:  # nobody reads any more: Python says so
        sys.exit(code)
    os._exit(code)


def _fail(message: str) -> int:
    print(f"graphmem: {message}", file=sys.stderr)
    return ExitCode.UNUSABLE


def _run(argv: list[str]) -> int:
    if not argv:
        top_parser().print_help()
        return ExitCode.OK
    name = argv[0]
    if name.startswith("-"):
        with contextlib.suppress(SystemExit):
            _parse(top_parser(), argv)
        return ExitCode.OK
    if name not in commands.COMMANDS:
        known = ", ".join(commands.COMMANDS)
        raise UsageError(
            f"{name!r} is not a command of graphmem ({known}){nearest(name, commands.COMMANDS)}"
        )
    command = commands.load(name)
    own = Parser(prog=f"graphmem {name}", **described(command))
    prepare(own, command)
    try:
        arguments = _parse(own, argv[1:])
    except SystemExit:  # --help
        return ExitCode.OK
    unit = _unit(arguments.unit)
    with CONSOLE.told(_verbosity(arguments), f"graphmem {name}"), as_text.in_unit(unit):
        return command.run(arguments)


def _verbosity(arguments: argparse.Namespace) -> Verbosity:
    if arguments.quiet:
        return Verbosity.QUIET
    return Verbosity.VERBOSE if arguments.verbose else Verbosity.NORMAL


def _unit(name: str | None) -> str | None:
    found = {unit.lower(): unit for unit in as_text.UNITS}
    if name is not None and name.lower() not in found:
        raise UsageError(
            f"--unit {name}: not one of {', '.join(as_text.UNITS)}{nearest(name, as_text.UNITS)}"
        )
    return None if name is None else found[name.lower()]


def _parse(parser: Parser, argv: list[str]) -> argparse.Namespace:
    unknown = [a for a in argv if a.startswith("--") and a.split("=")[0] not in parser.options()]
    if unknown:
        option = unknown[0].split("=")[0]
        raise UsageError(
            f"{option} is not an option of {parser.prog}{nearest(option, parser.options())}"
        )
    try:
        return parser.parse_args(argv)
    except UsageError as error:
        raise UsageError(f"{error} (see {parser.prog} --help)") from None


if __name__ == "__main__":
    entry()
