"""From a report's JSON back to the report.

A report of the same major version of the schema is read, whatever it has besides: keys that
this version does not know are left out, and what an older one did not have takes its default.
What is read says what fits on the GPU it was made for, and has no history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

from graphmem.errors import ModelLoadError
from graphmem.report.fits import Fit, Fits
from graphmem.report.whole import SCHEMA, Report

_NAMES = {int: "a whole number", str: "a text", bool: "true or false", NoneType: "null"}


def read_report(text: str | bytes, name: str) -> Report:
    """The report of a JSON text.

    Args:
        name: what the text is called in an error: the file's name.

    Raises:
        ModelLoadError: in one line, where it is no report, one of another major version, or one
            with something missing; with the key.
    """
    values = _object(text, name)
    _check_schema(values, name)
    parts = dict(values)
    fits = parts.pop("fits", {})
    where = _Where(name, "")
    parts["peak"] = _peak(parts.get("peak"))
    report: Report = where.item(Report, parts, fits=_fits(where.at("fits"), fits), ask_history=None)
    return report


def _object(text: str | bytes, name: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{name}: not JSON ({error}); {_MAKE_ONE}") from error
    if not isinstance(values, dict):
        raise ModelLoadError(f"{name}: not a report of graphmem; {_MAKE_ONE}")
    return values


_MAKE_ONE = "graphmem analyze SUBJECT -o report.json makes a report"


def _check_schema(values: Mapping[str, Any], name: str) -> None:
    found, (own, major) = values.get("schema"), SCHEMA.split("/")
    if not isinstance(found, str) or not found.startswith(f"{own}/"):
        raise ModelLoadError(f"{name}: not a report of graphmem; {_MAKE_ONE}")
    if found.split("/")[1].split(".")[0] != major:
        raise ModelLoadError(
            f"{name}: a report of schema {found}, and this version of graphmem reads {SCHEMA}: "
            "make it anew with the same version as the other"
        )


def _peak(values: Any) -> Any:
    """The peak with its range as the report has it: from and to."""
    span = values.get("device_bytes") if isinstance(values, dict) else None
    if not isinstance(span, dict):
        return values
    return {**values, "device_bytes": [span.get("low"), span.get("high")]}


def _fits(where: _Where, values: Any) -> Fits:
    if not isinstance(values, dict):
        where.refuse("an object", values)
    return Fits(
        {name: where.at(name).item(Fit, value, device=name) for name, value in values.items()}
    )


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


class _Where:
    """A place in a file, and reading what stands there as a type."""

    def __init__(self, file: str, path: str) -> None:
        self._file = file
        self._path = path

    def at(self, key: str | int) -> _Where:
        """A place below this one."""
        step = f"[{key}]" if isinstance(key, int) else f".{key}" if self._path else key
        return _Where(self._file, self._path + step)

    def refuse(self, expected: str, value: Any) -> NoReturn:
        """Say what was expected here, and what came."""
        shown = json.dumps(value)
        shown = shown if len(shown) <= 40 else type(value).__name__
        where = f"{self._path}: " if self._path else ""
        raise ModelLoadError(f"{self._file}: {where}expected {expected}, found {shown}")

    def item(self, kind: Any, value: Any, **given: Any) -> Any:
        """A dataclass of an object, with the fields that are ``given`` from elsewhere."""
        if not isinstance(value, dict):
            self.refuse("an object", value)
        hints, parts = _hints(kind), dict(given)
        for field in fields(kind):
            key = field.name
            if key in given:
                continue
            if key in value:
                parts[key] = self.at(key).read(hints[key], value[key])
            elif field.default is MISSING and field.default_factory is MISSING:
                self.at(key).refuse("a value", None)
        return kind(**parts)

    def read(self, hint: Any, value: Any) -> Any:
        """A value of a type: a number, a text, a list, an object, or one of several."""
        if hint is Any:
            return value
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            return self._one_of(arguments, value)
        if origin is tuple:
            return self._list(arguments, value)
        if origin is not None:
            return self._mapping(arguments[1], value)
        if is_dataclass(hint):
            return self.item(hint, value)
        if type(value) is not hint:
            self.refuse(_NAMES[hint], value)
        return value

    def _one_of(self, hints: tuple[Any, ...], value: Any) -> Any:
        if value is None and NoneType in hints:
            return None
        return self.read(next(hint for hint in hints if hint is not NoneType), value)

    def _list(self, hints: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            self.refuse("a list", value)
        if hints[-1] is Ellipsis:
            return tuple(self.at(i).read(hints[0], item) for i, item in enumerate(value))
        if len(value) != len(hints):
            self.refuse(f"{len(hints)} values", value)
        pairs = zip(hints, value, strict=True)
        return tuple(self.at(i).read(hint, item) for i, (hint, item) in enumerate(pairs))

    def _mapping(self, hint: Any, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.refuse("an object", value)
        return {key: self.at(key).read(hint, item) for key, item in value.items()}
