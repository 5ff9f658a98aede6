"""graphmem devices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from graphmem.commands.output import add_output, kind_of, write
from graphmem.errors import ExitCode

if TYPE_CHECKING:
    from graphmem.devices import Gpu

KINDS = {".txt": "table", ".json": "json"}


class Devices:
    """The GPUs that --device knows: capacity as PyTorch reports it, architecture, context."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.add_argument(
            "name", nargs="?", metavar="NAME", help="one GPU alone, such as A100-80GB or 4090"
        )
        add_output(parser, KINDS)

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Print the table, or one row of it."""
        from graphmem.devices import GPUS, find
        from graphmem.render.devices import rendered

        kind = kind_of(arguments.format, arguments.output, KINDS)
        gpus = GPUS if arguments.name is None else (find(arguments.name),)
        write(rendered({"devices": [_values(gpu) for gpu in gpus]}, kind), arguments.output)
        return ExitCode.OK


def _values(gpu: Gpu) -> dict[str, Any]:
    low, high = gpu.context_bytes
    return {
        "name": gpu.name,
        "full_name": gpu.full_name,
        "aliases": list(gpu.aliases),
        "kind": gpu.kind,
        "architecture": gpu.architecture,
        "arch": gpu.arch,
        "capacity_bytes": gpu.capacity_bytes,
        "capacity_error_bytes": gpu.capacity_error_bytes,
        "capacity_source": gpu.capacity_source,
        "context_bytes": {"low": low, "high": high},
        "context_source": gpu.context_source,
        "multiprocessors": gpu.multiprocessors,
        "l2_cache_bytes": gpu.l2_cache_bytes,
        "sm_clock_khz": gpu.sm_clock_khz,
        "memory_clock_khz": gpu.memory_clock_khz,
    }
