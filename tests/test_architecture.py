"""The rooms: who may import whom, and what is never imported without need.

A room is a folder or file directly in graphmem/. What stands in ``ARROWS`` is all that it
may import of the project, besides itself and the files that everybody uses.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

import graphmem
from graphmem import errors

ROOT = Path(graphmem.__file__).resolve().parent

EVERYBODY = frozenset({"errors", "options", "as_text", "collector"})
_DATA = frozenset({"devices", "schedule", "liveness", "allocator", "report", "fits", "summary"})
_TORCH = frozenset(
    {
        "sources",
        "targets",
        "trace",
        "resolve",
        "analysis",
        "callbacks",
        "measure",
        "serving",
        "instantiate",
        "largest",
        "plans",
    }
)

ARROWS: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "as_text": frozenset(),
    "collector": frozenset(),
    "options": frozenset({"errors"}),
    "techniques": frozenset(),
    "devices": frozenset(),
    "schedule": frozenset(),
    "growth": frozenset({"schedule"}),
    "copies": frozenset({"schedule"}),
    "liveness": frozenset({"schedule"}),
    "allocator": frozenset({"schedule", "liveness"}),
    "ort": frozenset({"allocator"}),
    "snapshots": frozenset({"allocator"}),
    "report": frozenset(),
    "recomputation": frozenset({"schedule", "report"}),
    "host": frozenset({"schedule", "report"}),
    "fits": frozenset({"devices", "schedule", "allocator", "report"}),
    "history": frozenset({"schedule", "allocator", "report", "fits"}),
    "summary": frozenset(
        {"devices", "schedule", "copies", "liveness", "allocator", "report", "fits"}
        | {"history", "host", "recomputation", "techniques"}
    ),
    "checks": frozenset({"report"}),
    "diffs": frozenset({"report"}),
    "compiled": frozenset({"schedule", "report", "summary"}),
    "parallelism": frozenset(),
    "exports": frozenset({"allocator", "report"}),
    "render": frozenset({"report", "diffs"}),
    "sources": frozenset({"schedule", "ort"}),
    "targets": frozenset({"devices", "schedule"}),
    "trace": frozenset(
        {"devices", "schedule", "growth", "report", "techniques", "sources", "targets"}
    ),
    "instantiate": frozenset({"devices", "schedule", "fits", "sources", "targets", "trace"}),
    "serving": _DATA | {"ort", "sources", "targets", "trace"},
    "resolve": frozenset({"devices", "allocator", "techniques", "parallelism", "trace"}),
    "analysis": _DATA | {"history", "compiled", "resolve", "sources", "targets", "trace"},
    "measure": _DATA | {"sources", "targets", "trace", "resolve", "snapshots", "ort", "serving"},
    "textbook": _DATA | {"analysis"},
    "callbacks": frozenset({"devices", "render", "report", "analysis"}),
    "testing": frozenset({"checks", "render", "report", "analysis"}),
    "pytest_plugin": frozenset({"testing", "report"}),
    "sweeps": _DATA | {"techniques", "parallelism", "sources", "trace", "resolve", "instantiate"},
    "largest": _DATA | {"sources", "trace", "resolve", "instantiate"},
    "plans": _DATA
    | {"techniques", "parallelism", "sources", "trace", "resolve", "instantiate", "largest"},
    "commands": _DATA
    | _TORCH
    | {"techniques", "parallelism", "render", "snapshots", "ort", "textbook", "sweeps"}
    | {"checks", "exports", "diffs"},
    "cli": frozenset({"commands"}),
    "__main__": frozenset({"cli"}),
}

# Against the arrows, inside of a function only: print(report) shows the table.
LATE = {(room, "render") for room in ("report", "diffs", "textbook", "largest", "plans")} | {
    ("report", "exports")
}

HEAVY = {
    "torch": ("analysis.py", *(f"{room}/*" for room in _TORCH)),
    "onnx": ("sources/onnx*", "serving/*"),
    "onnxruntime": ("measure/*", "sources/onnx/runtime/*"),
    "transformers": ("sources/*", "callbacks/transformers.py"),
    "timm": ("sources/*",),
    "torchvision": ("sources/*",),
}
"""The files that may import each of the heavy libraries."""


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name, and where: ``sources/inputs.py``, its line, in a function or not."""

    file: str
    line: int
    name: str
    late: bool

    @property
    def room(self) -> str:
        """The room that imports."""
        return _room(self.file)

    def __str__(self) -> str:
        return f"graphmem/{self.file}:{self.line} imports {self.name}"


def _room(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def _files() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def _imports() -> list[Import]:
    return [
        Import(file, line, name, late)
        for file in _files()
        for line, name, late in _names(ast.parse((ROOT / file).read_text("utf-8")), late=False)
    ]


def _names(node: ast.AST, *, late: bool) -> Iterator[tuple[int, str, bool]]:
    """All imported names below a node, ``from a import b`` as ``a.b``."""
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name, late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        yield from ((node.lineno, f"{base}.{alias.name}", late) for alias in node.names)
    inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        yield from _names(child, late=inside)


def _of_project(found: Import) -> str | None:
    """The room that is imported; None for another package, and for graphmem itself."""
    package, _, rest = found.name.partition(".")
    room = rest.split(".")[0]
    return room if package == "graphmem" and room in ARROWS else None


def _python(code: str) -> str:
    """The output of a fresh process; a failure shows its traceback."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_LOADED = f"import sys; print(*sorted({set(HEAVY)!r} & sys.modules.keys()), sep='+')"


# -- arrows


def test_every_room_has_its_arrows() -> None:
    rooms = {_room(file) for file in _files()} - {"__init__"}
    assert rooms <= ARROWS.keys(), "a new room: write into ARROWS what it may import"


def test_a_room_imports_only_what_stands_before_it() -> None:
    against = [
        str(found)
        for found in _imports()
        if found.room in ARROWS
        and (target := _of_project(found)) is not None
        and target not in {found.room} | ARROWS[found.room] | _everybody(found.room)
        and not (found.late and (found.room, target) in LATE)
    ]
    assert against == []


def _everybody(room: str) -> frozenset[str]:
    return frozenset() if room in EVERYBODY else EVERYBODY


def test_the_arrows_go_in_one_direction() -> None:
    order = list(ARROWS)
    backwards = {
        (room, target)
        for room, targets in ARROWS.items()
        for target in targets
        if order.index(target) >= order.index(room)
    }
    assert backwards == set()


def test_imports_name_the_whole_module() -> None:
    relative = [str(found) for found in _imports() if found.name.startswith(".")]
    assert relative == []


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_library_is_imported_in_its_rooms_only(library: str) -> None:
    outside = [
        str(found)
        for found in _imports()
        if found.name.split(".")[0] == library
        and not any(fnmatch(found.file, allowed) for allowed in HEAVY[library])
    ]
    assert outside == []


# -- what is loaded when


def test_import_graphmem_loads_nothing_heavy() -> None:
    assert _python(f"import graphmem; {_LOADED}") == "\n"


def test_import_of_the_command_line_loads_nothing_heavy() -> None:
    assert _python(f"import graphmem.cli; {_LOADED}") == "\n"


def test_help_loads_nothing_heavy() -> None:
    printed = _python(
        "import graphmem.cli\n"
        "try:\n"
        "    code = graphmem.cli.main(['--help'])\n"
        "except SystemExit as exit:\n"
        "    code = exit.code\n"
        "assert not code, code\n"
        f"{_LOADED}"
    )
    assert printed.startswith("usage: graphmem")
    assert printed.splitlines()[-1] == ""


def test_the_plain_rooms_are_imported_without_torch() -> None:
    plain = [_dotted(file) for file in _files() if _room(file) not in _TORCH]
    assert "graphmem.schedule" in plain
    blocked = "import importlib, sys; sys.modules.update(dict.fromkeys(['torch', 'onnx']))"
    _python(f"{blocked}\nfor name in {plain!r}: importlib.import_module(name)")


def _dotted(file: str) -> str:
    path = file.removesuffix(".py").removesuffix("/__init__").removesuffix("__init__")
    return ".".join(part for part in ("graphmem", *path.split("/")) if part)


# -- public names


def test_all_of_graphmem_is_sorted_and_can_be_had() -> None:
    assert graphmem.__all__ == sorted(graphmem.__all__)
    for name in graphmem.__all__:
        assert getattr(graphmem, name) is not None
        assert name in dir(graphmem)


def test_all_of_graphmem_is_complete() -> None:
    own = {
        name
        for name, value in vars(graphmem).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("graphmem")
    }
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.GraphmemError)
    }
    assert own | raised | graphmem._LAZY.keys() <= set(graphmem.__all__)


def test_an_unknown_name_of_graphmem_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'analyse'"):
        _ = graphmem.analyse


def test_what_a_module_lists_in_all_is_in_it() -> None:
    modules = [importlib.import_module(_dotted(file)) for file in _files() if file[:2] != "__"]
    missing = [
        f"{module.__name__}.{name}"
        for module in modules
        for name in getattr(module, "__all__", ())
        if not hasattr(module, name)
    ]
    assert missing == []
