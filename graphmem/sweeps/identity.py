"""What an answer depends on, so that a kept one is given again only where nothing changed.

1. *The case and the setting*, known beforehand: the subject's text, sizes and options; the
   versions of Python and torch, graphmem's own source files, and the variables of the
   environment that choose kernels. They make the key.
2. *The content*, known afterwards: the versions of the packages that the process had imported
   when the answer was there, and every other file that it had imported or opened (the model's
   code and what that imports, a configuration, an .onnx). They are kept beside the answer and
   looked at again.

Not covered: files that compiled code or another thread opens, what comes over the network, and
a factory that asks for the time or draws random numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import graphmem
from graphmem.sweeps.case import Case

_VARIABLES = ("CUBLAS", "CUDNN", "NVIDIA_TF32", "PYTORCH", "TORCH")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The SHA-256 of files, and the versions of packages, in the order of their names."""

    files: tuple[tuple[str, str], ...]
    packages: tuple[tuple[str, str], ...]

    def still_holds(self) -> bool:
        """Whether all files and packages are as they were."""
        return all(_digest(path) == digest for path, digest in self.files) and all(
            _version(name) == version for name, version in self.packages
        )


def key(case: Case) -> str:
    """The name of a case's answer."""
    known = {
        "case": case.to_dict(),
        "folder": str(Path.cwd()),  # a subject's path may be relative to it
        "python": platform.python_version(),
        "torch": _version("torch"),
        "cudnn": [_version(f"nvidia-cudnn-cu{n}") for n in (12, 13)],
        "graphmem": _own_digest(),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)},
    }
    text = json.dumps(known, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _own_digest() -> str:
    """Of graphmem's own files."""
    root = Path(graphmem.__file__).parent
    found = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".csv")):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _digest(path: str) -> str | None:
    """Of a file; None where there is none."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


# -- in the process that analyzes

_recording: list[tuple[int, set[str]]] = []
"""The threads that look for what they open, and what they have found."""

_hooked = False


@contextmanager
def opened() -> Iterator[set[str]]:
    """The files that this thread opens inside; what others do meanwhile is not the model's."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_noticed)  # it can't be taken away again
        _hooked = True
    files: set[str] = set()
    own = (threading.get_ident(), files)
    _recording.append(own)
    try:
        yield files
    finally:
        _recording[:] = [one for one in _recording if one is not own]


def _noticed(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _recording and isinstance(args[0], str | os.PathLike):
        path = str(os.fspath(args[0]))
        if _is_own(path):
            thread = threading.get_ident()
            for own, files in _recording:
                if own == thread:
                    files.add(path)


def manifest(files: set[str]) -> Manifest:
    """What the process has imported and opened of the user's own; packages by version."""
    loaded = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    packages = sorted({name.partition(".")[0] for name in loaded} - sys.stdlib_module_names)
    versions = [(name, version) for name in packages if (version := _version(name)) is not None]
    told = {name for name, _ in versions}
    imported = (f for name, f in loaded.items() if f and name.partition(".")[0] not in told)
    own = set(filter(_is_own, imported))
    paths = sorted({str(Path(file).absolute()) for file in own | files})
    digests = [(path, digest) for path in paths if _is_own(path) and (digest := _digest(path))]
    return Manifest(tuple(digests), tuple(versions))


def _is_own(path: str) -> bool:
    """Whether a file is not of Python, graphmem or the system, nor compiled from another."""
    return not path.startswith(_foreign()) and not path.endswith((".pyc", ".so"))


@cache
def _foreign() -> tuple[str, ...]:
    folders = {str(Path(graphmem.__file__).parent), "/proc", "/sys", "/dev", "/usr", "/etc"}
    folders.update(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
    return tuple(f"{Path(folder).absolute()}{os.sep}" for folder in folders)
