"""The commands of the command line, one a file, each imported when it is asked for."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Protocol

from graphmem.errors import ExitCode

COMMANDS = {
    "analyze": "graphmem.commands.analyze:Analyze",
    "max-batch": "graphmem.commands.max_batch:MaxBatchCommand",
    "plan": "graphmem.commands.plan:PlanCommand",
    "diff": "graphmem.commands.diff:DiffCommand",
    "check": "graphmem.commands.check:Check",
    "sweep": "graphmem.commands.sweep:Sweep",
    "verify": "graphmem.commands.verify:Verify",
    "estimate": "graphmem.commands.estimate:EstimateCommand",
    "snapshot": "graphmem.commands.snapshot:SnapshotCommand",
    "devices": "graphmem.commands.devices:Devices",
    "completion": "graphmem.commands.completion:Completion",
}
"""Name of a command -> where its class is."""


class Command(Protocol):
    """A command. Its docstring is its help text; importing it must not import torch."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Do it."""


def load(name: str) -> Command:
    """The command of a name."""
    module, _, cls = COMMANDS[name].partition(":")
    command: Command = getattr(import_module(module), cls)()
    return command
