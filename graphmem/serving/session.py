"""A session of ONNX Runtime for one model and one set of input sizes, simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphmem.errors import UnsupportedOpError, UsageError
from graphmem.options import Options
from graphmem.ort import Run, simulate
from graphmem.report import InputInfo
from graphmem.schedule import Unknown
from graphmem.serving.assemble import Assembled, assemble
from graphmem.serving.on_cuda import OnCuda, serve_on_cuda
from graphmem.serving.results import NOTHING, GraphCall, Result, describe, graph_call
from graphmem.serving.settings import Provider, ServeSettings
from graphmem.sources.inputs import InputRequest, InputSpec
from graphmem.sources.onnx.arguments import Arguments, arguments_of
from graphmem.sources.onnx.assumed import Assumed
from graphmem.sources.onnx.bounds import Bounds, active
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Model
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model, load_proto
from graphmem.sources.onnx.runtime import optimize
from graphmem.sources.onnx.runtime.measured import not_measured
from graphmem.sources.onnx.runtime.stand_in import missing_values
from graphmem.sources.onnx.user_rules import load_rules
from graphmem.trace.observe import observe

_NOT_INSTALLED = Unknown(
    "what ONNX Runtime would make of the graph",
    "the whole graph",
    "the file as it is: the package onnxruntime is not installed here",
)


@dataclass(frozen=True, slots=True)
class Served:
    """A simulated session: what it holds, and its runs; ``values`` are the inputs by name.

    ``cuda`` is what is known of one with the CUDA provider, ``limit`` its ``gpu_mem_limit``.
    """

    path: str
    assembled: Assembled
    runs: tuple[Run, ...]
    inputs: tuple[InputInfo, ...]
    unknown: tuple[Unknown, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    cuda: OnCuda | None = None
    limit: int | None = None


def serve(
    path: str, request: InputRequest, options: Options, settings: ServeSettings | None = None
) -> Served:
    """Simulate a session of ONNX Runtime's CPU or CUDA provider.

    Raises:
        ModelLoadError: the file is no model, or ONNX Runtime refuses it.
        InputError: an input or a size is missing.
        UsageError: the options are of something else than an inference.
    """
    settings = settings or ServeSettings()
    _check(path, request, options)
    if request.rules is not None:
        load_rules(request.rules)
    original = load_proto(path)
    stated = as_model(original, path)
    arguments = arguments_of(stated, request)
    bounds = Bounds(options.trip_count)
    can_optimize = settings.optimize and optimize.is_installed()
    on_cuda = settings.provider is Provider.CUDA
    proto = optimize.optimized(path, original, for_cuda=on_cuda) if can_optimize else original
    model = as_model(proto, path) if can_optimize else stated
    values = dict(zip((v.name for v in stated.graph.inputs), arguments.args, strict=True))
    with active(bounds):
        call = _run(model, values, arguments)
    assembled = assemble(
        *(proto, original, model, call, _results(model, values)),
        threads=settings.threads,
        packs=settings.packs,
        in_block=not settings.packs and settings.run.mem_pattern,
        has_amx=settings.has_amx,
    )
    missing = (_NOT_INSTALLED,) if settings.optimize and not can_optimize else ()
    lacks = missing_values(path, original) if can_optimize else ()
    notes = (*missing, *map(_values_of, lacks), *bounds.notes)
    if on_cuda:
        indices = optimize.indices(proto.graph, original.graph)
        numbers = {tuple(n.output): i for n, i in zip(proto.graph.node, indices, strict=True)}
        cuda = serve_on_cuda(assembled, model, options, settings, numbers)
        notes, limit = (*cuda.unknown, *notes), settings.run.arena.limit
        inputs = _described(values)
        return Served(path, cuda.assembled, cuda.runs, inputs, notes, values, cuda, limit)
    runs = simulate([assembled.execution] * settings.runs, settings.run, assembled.setup)
    notes = (*_kernels(model, assembled, strict=options.strict), *notes)
    return Served(path, assembled, tuple(runs), _described(values), notes, values)


def _values_of(file: str) -> Unknown:
    """A note on values that ONNX Runtime optimizes the graph without."""
    return Unknown(
        f"the values of weights in {file}",
        "the whole graph",
        "zeros, while ONNX Runtime optimizes the graph; that no two weights are equal",
    )


def _kernels(model: Model, assembled: Assembled, *, strict: bool) -> Iterator[Unknown]:
    """A note on the operators whose kernels' own buffers nobody has measured.

    Raises:
        UnsupportedOpError: there are some, and nothing is to be assumed.
    """
    elements = {n: r.element for n, r in assembled.results.items() if r.element}
    names = ", ".join(not_measured(model.graph, elements))
    if names and strict:
        raise UnsupportedOpError(
            f"{model.path}: what ONNX Runtime's kernels of {names} allocate for themselves is not "
            "known; without --strict it is taken to be nothing"
        )
    if names:
        yield Unknown(
            "what kernels of ONNX Runtime allocate for themselves, and pack of their weights",
            names,
            "nothing",
        )


def _check(path: str, request: InputRequest, options: Options) -> None:
    if not path.lower().endswith(".onnx"):
        raise UsageError(f"{path}: --target onnxruntime serves a model.onnx only")
    if options.mode != "inference":
        raise UsageError(
            f"{path}: ONNX Runtime serves; for --mode {options.mode} use --target cuda"
        )
    if options.precision is not None:
        raise UsageError(
            f"{path}: --precision {options.precision}: ONNX Runtime keeps the file's own types"
        )


def _run(model: Model, values: Mapping[str, Any], arguments: Arguments) -> GraphCall:
    module = build_module(model, weights=False, missing=Assumed(arguments.sizes))
    given = tuple(values[v.name] for v in model.graph.inputs)
    return graph_call(observe(module, (given, {}), describe))


def _results(model: Model, values: Mapping[str, Any]) -> dict[str, Result]:
    return {v.name: _result(values[v.name]) for v in model.graph.inputs}


def _result(value: Any) -> Result:
    if isinstance(value, InputSpec):
        return Result(value.shape, ElementType.of(value.dtype))
    found = describe(value)
    return found if isinstance(found, Result) else NOTHING


def _described(values: Mapping[str, Any]) -> tuple[InputInfo, ...]:
    found = {name: _result(value) for name, value in values.items()}
    return tuple(
        InputInfo(name, result.shape, result.element.name.lower())
        for name, result in found.items()
        if result.shape is not None and result.element is not None
    )
