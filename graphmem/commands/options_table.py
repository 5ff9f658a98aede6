"""From a table of options, as in a pyproject.toml, to what a parser gives."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from graphmem.errors import UsageError
from graphmem.options import nearest


def parsed(
    parser: argparse.ArgumentParser, subject: str, options: Mapping[str, Any], where: str
) -> argparse.Namespace:
    """The arguments of a SUBJECT with options, each by its long name without dashes.

    True and false are for options that take no value, lists for those that may be repeated,
    tables of NAME = VALUE too.

    Raises:
        UsageError: naming the place, the key and what was expected.
    """
    actions = _actions(parser)
    arguments = [
        text for key, value in options.items() for text in _one(actions, key, value, where)
    ]
    try:
        return parser.parse_args([*arguments, "--", subject])
    except UsageError as error:
        raise UsageError(f"{where}: {str(error).removeprefix('argument ')}") from error


def _actions(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {
        name.removeprefix("--"): action
        for action in parser._actions
        for name in action.option_strings
        if name.startswith("--") and name != "--help"
    }


def _one(actions: Mapping[str, argparse.Action], key: str, value: Any, where: str) -> Iterator[str]:
    if key not in actions:
        raise UsageError(
            f"{where}: {key!r} is not an option of graphmem analyze{nearest(key, actions)}"
        )
    action = actions[key]
    if action.nargs == 0:
        yield from _switch(action, key, value, where)
    elif isinstance(action, argparse._AppendAction):
        for item in _items(value, key, where):
            yield f"--{key}={_text(item, key, where)}"
    else:
        yield f"--{key}={_text(value, key, where)}"


def _switch(action: argparse.Action, key: str, value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, bool):
        raise UsageError(f"{where} {key}: expected true or false, found {value!r}")
    if value:
        yield f"--{key}"
    elif f"--no-{key}" in action.option_strings:
        yield f"--no-{key}"


def _items(value: Any, key: str, where: str) -> list[Any]:
    if isinstance(value, dict):
        return [f"{name}={_text(item, key, where)}" for name, item in value.items()]
    return value if isinstance(value, list) else [value]


def _text(value: Any, key: str, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise UsageError(f"{where} {key}: expected a text or a number, found {value!r}")
    return str(value)
