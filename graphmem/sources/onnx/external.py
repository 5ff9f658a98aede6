"""Values of weights that lie in files beside the model.

Source of the keys and their meaning: onnx/docs/ExternalData.md. A path is refused that is
absolute or leaves the model's folder, by ``..`` or by a link, and so is anything but a
regular file: a model from a stranger must not read other files, or hang on a device. A link
may lead to the folder that the model itself is a link into, as in caches of downloads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from graphmem.errors import ModelLoadError, shown

_MOST_DIGITS = 19  # of a file's offset, which has 63 bits


@dataclass(frozen=True, slots=True)
class ExternalBytes:
    """``length`` bytes (None: to the end) from ``offset`` on in a file."""

    file: Path
    offset: int
    length: int | None

    def read(self, expected: int, owner: str) -> bytes | None:
        """The bytes; None where there is no such file.

        Args:
            expected: how many there must be.
            owner: whose they are, for messages.

        Raises:
            ModelLoadError: there are fewer, or the file can't be read.
        """
        if self.length is not None and self.length < expected:
            raise ModelLoadError(f"{owner}: {self.length} B are stored, {expected} B are needed")
        try:
            # A pipe that took the file's place since it was looked at must not block.
            descriptor = os.open(self.file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ModelLoadError(f"{owner}: {self.file}: {error.strerror}") from error
        with open(descriptor, "rb") as opened:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ModelLoadError(f"{owner}: {self.file} is no regular file")
            opened.seek(self.offset)
            found = opened.read(expected)
        if len(found) < expected:
            raise ModelLoadError(
                f"{owner}: {self.file} ends after {len(found)} of {expected} B at {self.offset}"
            )
        return found


class ExternalFiles:
    """The files beside a model, each path checked once."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._folder = Path(model).absolute().parent
        self._roots = (self._folder.resolve(), Path(model).resolve().parent)
        self._checked: dict[str, Path] = {}

    def bytes_of(self, entries: Mapping[str, str], owner: str) -> ExternalBytes:
        """Where the values are that a tensor's ``external_data`` speaks of.

        Raises:
            ModelLoadError: the path is refused, or an entry is no number.
        """
        location = entries.get("location", "")
        if location not in self._checked:
            self._checked[location] = self._file(location, owner)
        numbers = {key: self._number(entries, key, owner) for key in ("offset", "length")}
        return ExternalBytes(self._checked[location], numbers["offset"] or 0, numbers["length"])

    def _file(self, location: str, owner: str) -> Path:
        def refused(why: str) -> ModelLoadError:
            return ModelLoadError(
                f"{self._model}: {owner}: external data in {shown(location)}: {why}"
            )

        parts = location.replace("\\", "/").split("/")
        if not location or "\0" in location:
            raise refused("this is no path")
        if location[0] in "/\\" or PureWindowsPath(location).drive:
            raise refused("the path must be relative to the model's folder")
        if ".." in parts:
            raise refused("the path leaves the model's folder")
        file = self._folder / location
        try:
            real = file.resolve()
            kind = real.stat().st_mode
        except FileNotFoundError:
            return file
        except (OSError, RuntimeError) as error:  # too long; a loop of links
            raise refused(
                getattr(error, "strerror", None) or "the path can't be resolved"
            ) from None
        if not any(real.is_relative_to(root) for root in self._roots):
            raise refused("a link leads out of the model's folder")
        if not stat.S_ISREG(kind):
            raise refused("this is no regular file")
        return real

    def _number(self, entries: Mapping[str, str], key: str, owner: str) -> int | None:
        text = entries.get(key)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            raise ModelLoadError(
                f"{self._model}: {owner}: external data's {key} is {shown(text)}, no number"
            )
        return int(text)
