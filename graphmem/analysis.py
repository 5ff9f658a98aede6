"""``graphmem.analyze`` and ``graphmem.record``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from graphmem import report as _report
from graphmem.compiled import compiled_run
from graphmem.fits import placement_of
from graphmem.history import history_of
from graphmem.options import DEFAULTS, Options
from graphmem.report import Report
from graphmem.report.history import History
from graphmem.resolve import make_options, optimizer_name
from graphmem.schedule import Schedule
from graphmem.summary import summarize
from graphmem.trace.adapters import adapted, elements
from graphmem.trace.inputs import Call, as_call, info
from graphmem.trace.lazy import materialized
from graphmem.trace.optimizers import OptimizerChoice
from graphmem.trace.parallel.units import with_units
from graphmem.trace.reach import reachable
from graphmem.trace.run import model_dtype, parameter_names, trace_callable, trace_model


def analyze(
    model: nn.Module,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: str = "training",
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerChoice = "adamw",
    precision: str | None = None,
    master_weights: bool = False,
    target: str = "cuda",
    foreach: bool | None = None,
    fused: bool | None = None,
    set_to_none: bool = True,
    clip_grad_norm: float | None = None,
    accumulate: int = 1,
    steps: int = 2,
    grad: str = "no_grad",
    strict: bool = False,
    alloc_conf: str | None = None,
    device: str | None = None,
    headroom: int | str = 0,
    trip_count: int | None = None,
    compile: bool = False,
    routing: str = "balanced",
    assume: Mapping[str, bool | int | float] | None = None,
    checkpoint: str | Sequence[str] | None = None,
    checkpoint_every: int = 1,
    checkpoint_save: str | Sequence[Any] | None = None,
    checkpoint_reentrant: bool = False,
    offload: str | Sequence[str] | None = None,
    pin_memory: bool = False,
    optimizer_in_backward: bool = False,
    channels_last: bool = False,
    chunked_loss: int | None = None,
    freeze: str | Iterable[str] | None = None,
    lora: str | Mapping[str, Any] | None = None,
    quantize: str | None = None,
    ranks: int | None = None,
    zero: int | None = None,
    ddp: bool = False,
    bucket_view: bool = False,
    bucket_cap_mb: int = 25,
    zero_bucket: int = 500_000_000,
    fsdp: bool = False,
    fsdp_units: str | Sequence[str] | None = None,
    fsdp_reshard: bool = True,
    fsdp_prefetch: int = 0,
    fsdp_param_dtype: str | None = None,
    fsdp_reduce_dtype: str | None = None,
    tp: bool = False,
    tp_plan: str | Mapping[str, str] | None = None,
    timeline: bool = False,
) -> Report:
    """The peak memory of a model's training step or inference, before anything runs.

    Args:
        model: any nn.Module, on any device; it is left as it was.
        inputs: a tensor, a tuple of positional arguments, a dict of keyword arguments, or
            specs such as ``graphmem.spec("32x3x224x224")``. Small tensors with data keep
            their values, of all others only size and dtype are read.
        kwargs: keyword arguments; ``inputs`` then holds the positional ones alone.
        mode: ``"training"`` or ``"inference"``.
        loss: a callable of the model's output; by default the output's ``.loss``, else the
            mean of its floating-point tensors.
        optimizer: a name (``"adamw"``, ``"sgd+momentum"``), a class of torch.optim, or a
            callable of the parameters.
        precision: ``"fp32"``, ``"bf16"`` or ``"fp16"`` convert the model; ``"amp-bf16"``
            and ``"amp-fp16"`` autocast, ``"amp-fp16"`` on CUDA with a GradScaler. None keeps
            the model's own dtypes.
        master_weights: with ``"bf16"`` or ``"fp16"``, give the optimizer fp32 copies of the
            parameters, so that its states are fp32 (see ``graphmem.trace.master_weights``).
        target: ``"cuda"`` rounds to the allocator's blocks, ``"cpu"`` counts bytes as a
            real run on the CPU does.
        foreach: as in torch.optim; None: PyTorch's own choice on the target.
        fused: as ``foreach``.
        set_to_none: of ``zero_grad``.
        clip_grad_norm: the norm to clip gradients to, None for no clipping.
        accumulate: micro-batches per step.
        steps: how many steps to simulate; from the second on optimizer states exist.
        grad: of an inference: ``"no_grad"``, ``"inference_mode"`` or ``"enabled"``.
        strict: refuse what would have to be assumed.
        alloc_conf: the caching allocator's settings in PyTorch's own syntax, such as
            ``"expandable_segments:True"``.
        device: the GPU, such as ``"A100-80GB"`` (``graphmem devices`` lists them); it decides
            which kernels run, and ``report.fits`` whether its memory is enough.
        headroom: what is to stay free of that memory, in bytes or as ``"2GiB"``; no other
            number of the report changes with it.
        trip_count: how often loops run whose count depends on data; once by default, or, in an
            ONNX model (``from_onnx``), as often as they may.
        routing: who is chosen by scores that nobody knows, such as the experts of a mixture:
            ``"balanced"``, each equally often, or ``"worst"``, each once and then always the
            same.
        assume: what holds at lines that ask for values which nobody has, such as
            ``{"model.py:12": True}``: a truth value, a number, how many elements are found, or
            how often a loop runs. The lines that ask are in ``report.unknown``.
        compile: also run the model as ``torch.compile`` would; ``report.compiled`` has what
            that takes, all else in the report is without it.
        checkpoint: modules whose activations are recomputed in backward, by patterns of their
            paths such as ``"model.layers.*"``; a ``*`` stays within one name, ``**`` does not.
        checkpoint_every: every how many of them, counted from one: 2 takes the second.
        checkpoint_save: operators whose results are kept all the same (selective
            checkpointing), such as ``["aten.mm", "aten.addmm"]``.
        checkpoint_reentrant: ``use_reentrant`` of ``torch.utils.checkpoint``.
        offload: what lies in the host's memory: ``"activations"`` (``save_on_cpu`` around the
            model's call), ``"optimizer"`` (see ``graphmem.trace.host_optimizer``), or both.
        pin_memory: of what is offloaded.
        optimizer_in_backward: each parameter is updated and its gradient let go as soon as it
            is there (see ``graphmem.trace.in_backward``).
        channels_last: weights and images in ``torch.channels_last``.
        chunked_loss: of a causal language model of transformers: logits and loss in so many
            chunks of tokens, recomputed in backward (see ``graphmem.trace.chunked_loss``).
        freeze: modules that are not trained, as patterns of their paths, as for ``checkpoint``.
        lora: adapters by peft, all else frozen: ``"r=16,alpha=32,targets=q_proj+v_proj"`` or a
            dict of the same, also with ``dropout``, ``save`` (modules that are trained whole),
            ``bias`` and ``dora``. (A model that peft has changed already is taken as it is.)
        quantize: pack the weights of linear layers as bitsandbytes does: ``"nf4"``, ``"fp4"``,
            each also with ``-double`` for packed tables, or ``"int8"``.
        ranks: how many GPUs train the model; all numbers are of one of them, the fullest.
        zero: how it is spread over them: 0, DistributedDataParallel; 1, with a
            ZeroRedundancyOptimizer; 2, as DeepSpeed's stage 2 does; 3, ``fully_shard`` of FSDP2.
        ddp: as ``zero=0``.
        bucket_view: ``gradient_as_bucket_view`` of DistributedDataParallel.
        bucket_cap_mb: of DistributedDataParallel.
        zero_bucket: of ``zero=2``, ``reduce_bucket_size``, a number of elements.
        fsdp: as ``zero=3``.
        fsdp_units: the modules that are given to ``fully_shard`` before the root is, by patterns
            of their paths such as ``"model.layers.*"``; by default the items of all ModuleLists.
        fsdp_reshard: ``reshard_after_forward``; True is torch's default, all but the root.
        fsdp_prefetch: how many of the next units are gathered beforehand, in forward and in
            backward (``set_modules_to_forward_prefetch`` and its like); 0 is torch's own
            choice, the next one in backward.
        fsdp_param_dtype: of FSDP2's MixedPrecisionPolicy, such as ``"bfloat16"``.
        fsdp_reduce_dtype: as ``fsdp_param_dtype``, of gradients when they are reduced.
        tp: spread by tensor parallelism, ``parallelize_module`` of torch.
        tp_plan: patterns of modules and the style of each, ``"colwise"``, ``"rowwise"`` or
            ``"sequence"``; by default the plan of a model of transformers.
        timeline: list every operation in ``report.timeline``.

    Returns:
        The report; all sizes are integers of bytes.

    Raises:
        GraphmemError: in one line, if an argument or the model can't be used.
    """
    given = {name: value for name, value in locals().items() if name in DEFAULTS}
    options = make_options(**{**given, "optimizer": optimizer_name(optimizer)})
    call = as_call(inputs, kwargs)
    report, _ = traced_call(model, call, options, loss=loss, optimizer=optimizer, timeline=timeline)
    return report


def traced_call(
    model: nn.Module,
    call: Call,
    options: Options,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerChoice = "adamw",
    kind: str = "module",
    name: str | None = None,
    timeline: bool = False,
) -> tuple[Report, Schedule]:
    """As ``analyze``, of resolved options and a call ``(args, kwargs)``; and the schedule."""
    with materialized(model, call):
        asked = {name: getattr(options, name) for name in ("freeze", "lora", "quantize")}
        model, options = adapted(model, options, model_dtype(options))
        parameters = list(model.parameters())
        counts = (
            sum(map(elements, parameters)),
            sum(elements(p) for p in parameters if p.requires_grad),
        )
        options = with_units(model, options)
        trace = trace_model(model, call, options, loss, optimizer)
        subject = _report.Subject(
            kind, name or type(model).__name__, *counts, info(trace.call, parameter_names(model))
        )
        told = {**options.to_dict(), **asked}
        report = summarize(trace.schedule, subject, options, told, torch_version(), timeline)
        if options.compile:
            ran = trace_model(model, call, options, loss, optimizer, compiled=True)
            compiled = compiled_run(ran.schedule, trace.schedule, ran.compiled, options)
            report = replace(report, compiled=compiled)
        return report, trace.schedule


def graph(
    model: nn.Module,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerChoice = "adamw",
    **options: Any,
) -> torch.fx.Graph:
    """The operators of a model's steps as one ``torch.fx.Graph``.

    Takes what ``analyze`` takes. ``node.meta["operation"]`` says phase, step, module,
    source line and which storages an operator reads, writes, allocates and sees freed,
    ``allocated_bytes`` and ``reserved_bytes`` (None but on target cuda) what the device holds
    while it runs; see ``graphmem.trace.graph`` for the rest.

    Raises:
        GraphmemError: in one line, if an argument or the model can't be used.
    """
    resolved = make_options(**{**options, "optimizer": optimizer_name(optimizer)})
    call = as_call(inputs, kwargs)
    trace = trace_model(model, call, resolved, loss, optimizer, graph=True)
    assert trace.graph is not None  # it was asked for
    placement = placement_of(trace.schedule, resolved)
    _annotate(trace.graph, history_of(trace.schedule, resolved, placement))
    return trace.graph


def _annotate(graph: torch.fx.Graph, history: History) -> None:
    """Write what the device holds into the operators' meta."""
    for node in graph.nodes:
        if "indices" in node.meta:
            moments = [history.moments[i] for i in node.meta["indices"]]
            node.meta["allocated_bytes"] = max(moment.allocated_bytes for moment in moments)
            node.meta["reserved_bytes"] = max(
                (m.reserved_bytes for m in moments if m.reserved_bytes is not None), default=None
            )


def torch_version() -> str:
    """Torch's version without the name of its build: the bytes are the same on all."""
    return str(torch.__version__).split("+")[0]


def record(
    step: Callable[[], Any],
    steps: int = 2,
    *,
    target: str = "cuda",
    strict: bool = False,
    alloc_conf: str | None = None,
    device: str | None = None,
    headroom: int | str = 0,
    trip_count: int | None = None,
    routing: str = "balanced",
    assume: Mapping[str, bool | int | float] | None = None,
    timeline: bool = False,
) -> Report:
    """The peak memory of any callable that runs the user's own loop.

    The models and optimizers that the callable reaches (its closure, the globals it names,
    its ``self``) are live from the start and are left as they were. What else it changes
    in Python (counters, lists, schedulers) stays changed; tensors that it kept from the
    run come back as meta tensors.

    Args:
        step: called without arguments, ``steps`` times. Where what two steps leave in memory
            looks like a leak it is called once more, to be sure (see ``report.growth``).
        steps: how many times.
        target: as for ``analyze``.
        strict: refuse what would have to be assumed.
        alloc_conf: as for ``analyze``.
        device: as for ``analyze``.
        headroom: as for ``analyze``.
        trip_count: as for ``analyze``.
        routing: as for ``analyze``.
        assume: as for ``analyze``.
        timeline: list every operation in ``report.timeline``.

    Raises:
        GraphmemError: in one line, if the callable fails.
    """
    options = make_options(
        mode="training",
        target=target,
        steps=steps,
        strict=strict,
        alloc_conf=alloc_conf,
        device=device,
        headroom=headroom,
        trip_count=trip_count,
        routing=routing,
        assume=assume,
    )
    found = reachable(step)
    parameters = {id(p): p for _, module in found.modules for p in module.parameters()}.values()
    subject = _report.Subject(
        kind="callable",
        name=getattr(step, "__qualname__", type(step).__name__),
        parameters=sum(p.numel() for p in parameters),
        trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
        inputs=(),
    )
    schedule = trace_callable(step, options, found)
    shown = {name: value for name, value in options.to_dict().items() if name in _OF_A_RECORD}
    return summarize(schedule, subject, options, shown, torch_version(), timeline)


_OF_A_RECORD = frozenset(
    {"target", "steps", "strict", "alloc_conf", "device", "headroom"}
    | {"trip_count", "routing", "assume"}
)
"""The options that a recorded step has."""
