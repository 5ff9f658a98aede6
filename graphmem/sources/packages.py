"""Import of the packages that only some kinds of subject need."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from graphmem.errors import ModelLoadError, one_line


def needed(package: str, extra: str, subject: str) -> ModuleType:
    """The package, imported.

    Raises:
        ModelLoadError: it is not installed, and says which extra installs it; or it is
            and can't be imported.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise ModelLoadError(f"{subject}: {package} needs {error.name}: install it") from error
        raise ModelLoadError(
            f"{subject} needs {package}: pip install 'graphmem[{extra}]'"
        ) from error
    except Exception as error:  # a broken installation raises anything
        raise ModelLoadError(
            f"{subject}: {package} can't be imported: {one_line(error)}"
        ) from error


def missing(package: str) -> str | None:
    """What to do for a package that is not installed; None if it is. Nothing is imported."""
    if importlib.util.find_spec(package) is not None:
        return None
    return f"needs {package}: pip install 'graphmem[{package}]'"
