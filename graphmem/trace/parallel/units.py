"""Wrapping units: the modules whose parameters are gathered together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from graphmem.options import Options, Wrapper
from graphmem.techniques import parts
from graphmem.trace.matching import find_modules


def units_of(root: nn.Module, patterns: str | None) -> dict[str, nn.Module]:
    """The modules below ``root`` that are units of their own, by path, inner ones first.

    Args:
        patterns: of ``trace.matching``, with commas between them; None for ``usual_units``.

    Raises:
        UsageError: for a pattern that matches no module, with the nearest paths.
    """
    asked = usual_units(root) if patterns is None else patterns
    wanted = parts(asked)
    found = find_modules(root, wanted, "fsdp-units") if wanted else {}
    inner_first = sorted(found, key=lambda path: -path.count("."))
    return {path: found[path] for path in inner_first if found[path] is not root}


def with_units(root: nn.Module, options: Options) -> Options:
    """The options with the units named that FSDP takes where the user names none."""
    if options.wrapper is not Wrapper.FSDP or options.fsdp_units is not None:
        return options
    return replace(options, fsdp_units=usual_units(root))


def usual_units(root: nn.Module) -> str:
    """The items of the outermost ModuleLists: ``model.layers.*``; none where there is no list.

    Source: the loop of torch's FSDP2 tutorial, ``for layer in model.layers: fully_shard(layer)``.
    """
    return ",".join(f"{path}.*" for path in _lists(root))


def _lists(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """The paths of the outermost ModuleLists that have items."""
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if not isinstance(child, nn.ModuleList):
            yield from _lists(child, f"{path}.")
        elif len(child):
            yield path
