"""``program.pt2``: a program saved by ``torch.export.save``, with its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from graphmem.errors import InputError, ModelLoadError
from graphmem.sources.building import Built, Recipe, plain
from graphmem.sources.inputs import InputRequest, InputSpec, ModelInputs
from graphmem.sources.timm_models import no_text_options


def recipe(path: str, asked: InputRequest) -> Recipe:
    """How to load the program in the file ``path``; its inputs are the exported examples.

    Raises:
        ModelLoadError: there is no such file.
        InputError: ``asked`` has an option that a program has no use for.
    """
    no_text_options(path, asked)
    if not Path(path).is_file():
        raise ModelLoadError(f"{path}: no such file")
    return Recipe(
        "exported", path, lambda: _load(path, asked), _explain, on_meta=False, batched=False
    )


def _load(path: str, asked: InputRequest) -> Built:
    program = torch.export.load(path)
    if asked.batch is not None:
        _check_batch(path, program, asked.batch)
    return program.module(), _inputs(program)


def _inputs(program: ExportedProgram) -> ModelInputs:
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
        return ModelInputs(tuple(args), dict(kwargs))
    return ModelInputs(tuple(InputSpec(_sizes(v), v.dtype) for v in _placeholders(program)))


def _placeholders(program: ExportedProgram) -> list[Any]:
    """The fake tensors that the program's own inputs were exported with."""
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    nodes = (n for n in program.graph.nodes if kinds.get(n.name) is InputKind.USER_INPUT)
    return [n.meta["val"] for n in nodes if isinstance(n.meta.get("val"), torch.Tensor)]


def _sizes(value: Any) -> tuple[int, ...]:
    """The sizes that were exported; of a dynamic one, the size of the example."""
    return tuple(s if type(s) is int else int(s.node.hint) for s in value.shape)


def _check_batch(path: str, program: ExportedProgram, batch: int) -> None:
    """Check that the first input's dimension 0 is dynamic, or has this length."""
    first = next((v for v in _placeholders(program) if v.dim()), None)
    size = first.shape[0] if first is not None else batch
    if type(size) is int and size != batch:
        raise InputError(
            f"{path} is exported for dimension 0 = {size} only, not --batch {batch}; "
            "export it again with dynamic_shapes"
        )


def _explain(error: BaseException) -> str:
    return f"torch.export.load can't read it: {plain(error)}"
