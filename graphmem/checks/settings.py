"""``[tool.graphmem]`` of a pyproject.toml.

.. code-block:: toml

    [tool.graphmem]
    baseline = "memory"            # a folder, kept with the code
    allowed-growth = "1%"          # of every model that says nothing else

    [tool.graphmem.models.resnet50]
    subject = "torchvision:resnet50"
    batch = 32                     # any option of graphmem analyze, without its dashes
    precision = "amp-bf16"
    device = ["T4", "L4"]          # is to fit on each, with its kernels
    budget = "12GiB"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmem.checks.limits import Limits, parse_growth
from graphmem.errors import UsageError
from graphmem.options import nearest, parse_bytes

_OWN = ("budget", "device", "allowed-growth")
_TOP = ("baseline", *_OWN, "models")
_MODEL = ("subject", *_OWN)


@dataclass(frozen=True, slots=True)
class Checked:
    """A model to check: its limits, and the options that it is analyzed with.

    ``line`` is where the model stands in ``file``, 1 for the first.
    """

    name: str
    subject: str
    limits: Limits
    options: Mapping[str, Any]
    file: Path
    line: int

    @property
    def where(self) -> str:
        """Its place, for an error."""
        return f"{self.file}: [tool.graphmem.models.{self.name}]"


@dataclass(frozen=True, slots=True)
class Settings:
    """The table as a whole."""

    file: Path
    baseline: Path | None
    models: tuple[Checked, ...]


def find_settings(start: Path) -> Path:
    """The nearest pyproject.toml with such a table, here or in a folder above.

    Raises:
        UsageError: if there is none.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file() and "graphmem" in _table(_read(path), "tool", str(path)):
            return path
    raise UsageError(
        "check what? name a SUBJECT, or list models in a table [tool.graphmem.models.NAME] of "
        "pyproject.toml"
    )


def read_settings(path: Path) -> Settings:
    """The settings of a file.

    Raises:
        UsageError: with the file, the key and what was expected.
    """
    content = _read(path)
    text = path.read_text("utf-8")
    where = f"{path}: [tool.graphmem]"
    table = _table(_table(content, "tool", str(path)), "graphmem", str(path))
    _only(table, _TOP, where)
    models = _table(table, "models", where)
    if not models:
        raise UsageError(f"{where}: no models; add a table [tool.graphmem.models.NAME]")
    baseline = _text(table, "baseline", where)
    found = [
        checked
        for name in models
        for checked in _model(name, _table(models, name, where), table, path, _line(text, name))
    ]
    return Settings(path, None if baseline is None else path.parent / baseline, tuple(found))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # not TOML, not UTF-8
        raise UsageError(f"{path}: can't be read as TOML: {error}") from error


def _model(
    name: str, table: Mapping[str, Any], defaults: Mapping[str, Any], file: Path, line: int
) -> Iterator[Checked]:
    where = f"{file}: [tool.graphmem.models.{name}]"
    subject = _text(table, "subject", where)
    if subject is None:
        raise UsageError(f"{where}: subject is missing, such as subject = 'torchvision:resnet50'")
    own = {key: table.get(key, defaults.get(key)) for key in _OWN}
    given = {key: value for key, value in own.items() if value is not None}
    options = {key: value for key, value in table.items() if key not in _MODEL}
    devices = _devices(given.get("device"), where)
    for device in devices:
        yield Checked(
            name=f"{name}@{device}" if len(devices) > 1 else name,
            subject=subject,
            limits=_limits(given, device, where),
            options=options if device is None else {**options, "device": device},
            file=file,
            line=line,
        )


def _limits(given: Mapping[str, Any], device: str | None, where: str) -> Limits:
    budget, growth = given.get("budget"), given.get("allowed-growth")
    return Limits(
        budget=None if budget is None else parse_bytes(budget, f"{where} budget"),
        device=device,
        growth=None if growth is None else parse_growth(growth, f"{where} allowed-growth"),
    )


def _devices(value: Any, where: str) -> list[str | None]:
    if value is None:
        return [None]
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{where} device: expected the name of a GPU or a list of them")
    return [*names]


def _table(holder: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = holder.get(key, {})
    if not isinstance(value, dict):
        raise UsageError(f"{where} {key}: expected a table, found {value!r}")
    return value


def _text(table: Mapping[str, Any], key: str, where: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{where} {key}: expected a text, found {value!r}")
    return value


def _only(table: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in keys:
            raise UsageError(
                f"{where}: {key!r} is not one of {', '.join(keys)}{nearest(key, keys)}"
            )


def _line(text: str, name: str) -> int:
    """The line of a model's table, 1 where it is written in another way."""
    headers = (f"[tool.graphmem.models.{name}]", f'[tool.graphmem.models."{name}"]')
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip().startswith(headers):
            return number
    return 1
