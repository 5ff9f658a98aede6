"""graphmem completion."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable

from graphmem.errors import ExitCode, UsageError
from graphmem.options import nearest

_SHELLS = ("bash", "zsh", "tcsh")


class Completion:
    """A script for a shell that completes commands, options and files.

    In bash: eval "$(graphmem completion bash)"; in zsh: graphmem completion zsh >
    "${fpath[1]}/_graphmem".
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.add_argument("shell", metavar="SHELL", help=", ".join(_SHELLS))

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Print the script."""
        from graphmem.commands.parser import whole_parser

        shell = arguments.shell
        if shell not in _SHELLS:
            raise UsageError(
                f"completion: {shell!r} is not one of {', '.join(_SHELLS)}{nearest(shell, _SHELLS)}"
            )
        print(_complete()(whole_parser(), shell))
        return ExitCode.OK


def _complete() -> Callable[[argparse.ArgumentParser, str], str]:
    try:
        shtab = importlib.import_module("shtab")
    except ImportError as error:
        raise UsageError(
            "completion: needs the package shtab: pip install 'graphmem[completion]'"
        ) from error
    complete: Callable[[argparse.ArgumentParser, str], str] = shtab.complete
    return complete
