"""Modules by patterns of their paths, such as ``model.layers.*``.

1. A pattern has names with dots between them, as a path has; a ``*``, ``?`` or ``[...]`` stays
   within one name: ``model.layers.*`` are the layers, not what is in them. ``**`` is any number
   of names. The model itself is ``(top level)``, and only that.
2. Containers that are never called (ModuleList, ModuleDict) are no match.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from graphmem.errors import UsageError
from graphmem.schedule import TOP_LEVEL

_MOST_NAMES = 3


def find_modules(
    model: nn.Module, patterns: Sequence[str], option: str, every: int = 1
) -> dict[str, nn.Module]:
    """The modules whose paths match one of some patterns, by path, in the model's order.

    Args:
        option: the name of the option in an error.
        every: take the ``every``th, twice ``every``th, ... of them. Source: torchtitan,
            ``_apply_op_sac_to_transformer_block_with_flex`` and its neighbour for
            ``selective_ac_option``, a number: a count from one that the number divides.

    Raises:
        UsageError: for a pattern that matches nothing, with the nearest names.
    """
    modules = {path or TOP_LEVEL: module for path, module in model.named_modules()}
    found: set[str] = set()
    for pattern in patterns:
        matching = [path for path in modules if _matches(path, pattern)]
        called = [path for path in matching if not _is_container(modules[path])]
        if not called:
            raise UsageError(_nothing(pattern, matching, modules, option))
        found.update(called)
    taken = [path for path in modules if path in found][every - 1 :: every]
    if not taken:
        raise UsageError(f"{option} every {every}: {len(found)} modules match, fewer than {every}")
    return {path: modules[path] for path in taken}


def _matches(path: str, pattern: str) -> bool:
    if TOP_LEVEL in (path, pattern):
        return path == pattern
    return _names_match(path.split("."), pattern.split("."))


def _names_match(names: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_names_match(names[n:], patterns[1:]) for n in range(len(names) + 1))
    return (
        bool(names) and fnmatchcase(names[0], patterns[0]) and _names_match(names[1:], patterns[1:])
    )


def _is_container(module: nn.Module) -> bool:
    """Whether a module has no forward of its own, so that nobody calls it."""
    return type(module).forward is nn.Module.forward


def _nothing(
    pattern: str, matching: Sequence[str], modules: dict[str, nn.Module], option: str
) -> str:
    if matching:
        first = matching[0]
        return (
            f"{option}: {first!r} is a {type(modules[first]).__name__}, which is not called "
            f"itself; did you mean '{first}.*'?"
        )
    names = difflib.get_close_matches(pattern, _shown(modules), n=_MOST_NAMES, cutoff=0.3)
    near = f"; the nearest are {', '.join(names)}" if names else ""
    return f"{option}: no module's path matches {pattern!r}{near}"


def _shown(paths: Iterable[str]) -> list[str]:
    """The paths, with a ``*`` in the place of the numbers of those that repeat."""
    starred = (".".join("*" if name.isdigit() else name for name in p.split(".")) for p in paths)
    return list(dict.fromkeys(starred))
