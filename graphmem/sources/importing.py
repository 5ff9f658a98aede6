"""Importing the file or module that a user's factory lives in."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import itertools
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from graphmem.errors import ModelLoadError
from graphmem.options import nearest
from graphmem.sources.building import plain, quiet
from graphmem.sources.without_gpu import mixed_precision_available

_counter = itertools.count()


def imported(where: str) -> ModuleType:
    """The module at ``path/to/file.py`` or ``package.module``, imported.

    Raises:
        ModelLoadError: there is no such file or module, or its own code fails.
    """
    try:
        with quiet(), mixed_precision_available(), on_path(folder_of(where)):
            return _from_file(Path(where)) if where.endswith(".py") else _from_name(where)
    except ModelLoadError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelLoadError(f"{where}: {located(error, where)}") from error


def folder_of(where: str) -> str:
    """The folder that imports of a file are found from; for a module, the current one."""
    return str(Path(where).resolve().parent if where.endswith(".py") else Path.cwd())


@contextlib.contextmanager
def on_path(folder: str) -> Iterator[None]:
    """Put a folder in front of ``sys.path``, for the time of the block."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def located(error: BaseException, where: str) -> str:
    """An error in one line, with the line of the user's own code that it arose in.

    That is the last frame in the file ``where`` or below its folder, installed packages
    left out; none is named where the error arose outside of them.
    """
    text = plain(error)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{text.split(' (')[0]} ({Path(error.filename).name}, line {error.lineno})"
    folder = Path(folder_of(where))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        is_ours = path.is_relative_to(_OURS) or "site-packages" in path.parts
        if path.is_relative_to(folder) and not is_ours:
            return f"{text} ({path.name}, line {frame.lineno})"
    return text


_OURS = Path(__file__).resolve().parents[1]


def functions_of(path: Path) -> list[str]:
    """The names of a file's public top-level functions and classes, as written."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return []
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [n.name for n in body if isinstance(n, kinds) and not n.name.startswith("_")]


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        siblings = [str(p) for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ModelLoadError(f"{path}: no such file{nearest(str(path), siblings)}")
    name = f"_graphmem_subject_{next(_counter)}_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path.resolve())
    if found is None or found.loader is None:
        raise ModelLoadError(f"{path}: is no Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and type hints look their module up there
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _from_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name != missing and not name.startswith(f"{missing}."):
            raise
        raise ModelLoadError(f"{name}: there is no module {missing!r}; is it installed?") from error
