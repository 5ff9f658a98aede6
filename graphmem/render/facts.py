"""The sentences above and below the tables, shared by the terminal and markdown.

``mark`` sets a name (an operator, a module, a file) apart from the sentence around it:
``str`` leaves it as it is, markdown makes it a code span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from graphmem.as_text import format_bytes, format_count, format_tensor
from graphmem.options import DEFAULTS, words
from graphmem.render import techniques
from graphmem.render.rows import LayerRows
from graphmem.report import (
    CopyItem,
    GrowthItem,
    OutOfMemory,
    Report,
    Step,
    Subject,
    UnknownItem,
)

Mark = Callable[[str], str]
Fact = tuple[str, str]
"""A label and what there is to say about it."""

_MOST_INPUTS = 6
_MOST_KERNELS = 4
_MOST_GROWTHS = 4

_TOLD = (
    *("accumulate", "checkpoint", "checkpoint_every", "checkpoint_save", "checkpoint_reentrant"),
    *("clip_grad_norm", "zero", "ddp", "fsdp", "tp", "ranks", "fsdp_units", "fsdp_reshard"),
    *("fsdp_prefetch", "fsdp_param_dtype", "fsdp_reduce_dtype", "tp_plan", "bucket_view"),
    *("bucket_cap_mb", "zero_bucket", "offload", "pin_memory", "optimizer_in_backward"),
    *("channels_last", "chunked_loss", "freeze", "lora", "quantize", "set_to_none", "alloc_conf"),
)
"""Options that are told where they differ from the default."""


def peak_size(report: Report) -> str:
    """The answer in three words: ``Peak 14.31 GiB allocated``."""
    return f"Peak {format_bytes(report.peak.allocated_bytes)} allocated"


def peak_moment(report: Report, mark: Mark = str) -> str:
    """When the peak is and who runs: step, phase, operator, module and source line."""
    peak = report.peak
    when = [f"step {peak.step}"] if len(report.steps) > 1 else []
    when += [peak.phase] if peak.phase else []
    who = origin(peak.op, peak.module, peak.source, mark)
    return ", ".join([f"in {', '.join(when)}"] * bool(when) + [f"at {who}"] * bool(peak.op))


def origin(op: str | None, module: str, source: str | None, mark: Mark = str) -> str:
    """Where something comes from: ``aten.mm of layers.0 (model.py:12)``."""
    place = f"{mark(op)} of {mark(module)}" if op else mark(module)
    return f"{place} ({mark(source)})" if source else place


def facts(report: Report, mark: Mark = str) -> tuple[Fact, ...]:
    """What stands between the headline and the tables, without what there is nothing of."""
    return (
        ("Model", _model(report.subject, mark)),
        *_inputs(report.subject, mark),
        *_run(report.created_from, mark),
        ("Memory", _memory(report)),
        *_device(report, mark),
        *_fits(report, mark),
        *_steps(report),
        *_arena(report, mark),
        *_kernels(report, mark),
        *techniques.host(report),
        *techniques.checkpoints(report, mark),
        *_idle(report),
        *_compiled(report, mark),
        *_growth(report, mark),
        *_copies(report, mark),
    )


def unknown_item(item: UnknownItem, mark: Mark = str, plain: Mark = str) -> str:
    """An assumption in one sentence; ``plain`` treats what is not a name."""
    size = "" if item.bytes is None else f" ({format_bytes(item.bytes)})"
    where = f" at {mark(item.where)}" if item.where else ""
    return f"{plain(item.what)}{where}: assumed {plain(item.assumed)}{size}"


def category_name(category: str) -> str:
    """A category as words: ``saved for backward``."""
    return category.replace("_", " ")


def layers_title(layers: LayerRows) -> str:
    """``Layers``, and how to see all of them where they are collapsed."""
    if layers.depth >= layers.full_depth:
        return "Layers"
    more = f"--depth {layers.full_depth} shows all {layers.full_count} rows"
    return f"Layers, summed to depth {layers.depth} ({more})"


def _model(subject: Subject, mark: Mark) -> str:
    count = f"{format_count(subject.parameters)} parameters"
    if subject.trainable_parameters != subject.parameters:
        count += f" ({format_count(subject.trainable_parameters)} trainable)"
    return f"{mark(subject.name)}, {count}"


def _inputs(subject: Subject, mark: Mark) -> Iterator[Fact]:
    shown = subject.inputs[:_MOST_INPUTS]
    texts = [mark(f"{i.name} {format_tensor(i.dtype, i.shape)}".strip()) for i in shown]
    if more := len(subject.inputs) - len(shown):
        texts.append(f"and {more} more")
    if texts:
        yield "Inputs", ", ".join(texts)


def _run(options: Mapping[str, Any], mark: Mark) -> Iterator[Fact]:
    """The options that decide the numbers, those of a training only where there is one."""
    training = options.get("mode") == "training"
    steps = options.get("steps") if training else None
    keys = ("optimizer", "precision", "target") if training else ("precision", "target")
    texts = [
        str(options.get("mode") or ""),
        *(mark(str(options[key])) for key in keys if options.get(key)),
        *(
            _option(key, options[key], mark)
            for key in _TOLD
            if options.get(key) not in (None, "", DEFAULTS[key])
        ),
        f"{steps} step{'s' if steps > 1 else ''}" if steps else "",
    ]
    if text := ", ".join(filter(None, texts)):
        yield "Run", text


def _option(key: str, value: Any, mark: Mark) -> str:
    if key == "set_to_none":
        return "gradients filled with zeros"
    if key == "ranks":
        return f"one of {mark(str(value))} ranks"
    return words(key) if value is True else f"{words(key)} {mark(str(value))}"


def _memory(report: Report) -> str:
    peak = report.peak
    sizes = [f"{format_bytes(peak.requested_bytes)} requested"]
    sizes.append(f"{format_bytes(peak.allocated_bytes)} allocated")
    if peak.reserved_bytes is not None:
        sizes.append(f"{format_bytes(peak.reserved_bytes)} reserved")
    if peak.device_bytes is not None:
        low, high = map(format_bytes, peak.device_bytes)
        sizes.append(f"{low if low == high else f'{low} to {high}'} in nvidia-smi")
    return ", ".join(sizes)


def _steps(report: Report) -> Iterator[Fact]:
    several = len(report.steps) > 1
    for step in report.steps:
        phases = [(name, size) for name, size in step.phases.items() if size is not None]
        if several or len(phases) > 1:
            yield f"Step {step.step}" if several else "Step", _step(step, phases)


def _step(step: Step, phases: list[tuple[str, int]]) -> str:
    text = ", ".join(f"{name} {format_bytes(size)}" for name, size in phases)
    return f"{format_bytes(step.allocated_bytes)}" + (f" ({text})" if text else "")


def _arena(report: Report, mark: Mark) -> Iterator[Fact]:
    """ONNX Runtime's arena: the first run, later ones, and what would be enough."""
    arena = report.arena
    if arena is None:
        return
    for label, run in (("First run", arena.first_run), ("Later", arena.later_runs)):
        sizes = (
            f"{format_bytes(run.requested_peak_bytes)} requested",
            f"{format_bytes(run.in_use_peak_bytes)} in use",
            f"{format_bytes(run.arena_bytes)} held by the arena",
        )
        yield label, f"{', '.join(sizes)}, at {origin(run.op, run.node, None, mark)}"
    outputs, best = map(format_bytes, (arena.outputs_bytes, arena.best_bytes))
    yield "Arena", f"all outputs together {outputs}; {best} would do, buffers freed at last use"


def _kernels(report: Report, mark: Mark) -> Iterator[Fact]:
    for kernel in report.kernels[:_MOST_KERNELS]:
        calls = f"{kernel.calls} call{'s' if kernel.calls > 1 else ''}"
        yield "Kernel", f"{mark(kernel.op)}: {kernel.kernel} ({calls}), {kernel.why}"
    more = len(report.kernels) - _MOST_KERNELS
    if more > 0:
        yield "Kernel", f"and {more} more choices, in the JSON report"


def _idle(report: Report) -> Iterator[Fact]:
    if report.idle_bytes > 0:
        size = format_bytes(report.idle_bytes)
        yield "Idle", f"{size} of the peak is idle: held although no later operation reads it"
    bound = format_bytes(report.last_use_peak_bytes)
    yield "Last use", f"{bound} would be the peak if every tensor were freed at its last use"


def _growth(report: Report, mark: Mark) -> Iterator[Fact]:
    texts = {
        "graph": _kept_graph,
        "tensors": _kept_tensors,
        "optimizer_states": _states,
        "cache": _cache,
    }
    for item in report.growth[:_MOST_GROWTHS]:
        yield "Growth", texts[item.kind](item, mark)
    more = len(report.growth) - _MOST_GROWTHS
    if more > 0:
        yield "Growth", f"and {more} more, in the JSON report"


def _kept_graph(item: GrowthItem, mark: Mark) -> str:
    return (
        f"{format_bytes(item.bytes)} more in each of {item.times} steps: {_keeper(item, mark)} "
        f"the tensor of {_of(item, mark)} and with it autograd's graph, {_tensors(item)}; keep "
        f"its {mark('.item()')} or {mark('.detach()')}"
    )


def _kept_tensors(item: GrowthItem, mark: Mark) -> str:
    largest = "" if item.tensors == 1 else "the largest "
    return (
        f"{format_bytes(item.bytes)} more in each of {item.times} steps: {_keeper(item, mark)} "
        f"{_tensors(item)}, {largest}of {_of(item, mark)}; keep the {mark('.item()')} of a "
        f"number, or the {mark('.cpu()')} of a detached tensor"
    )


def _states(item: GrowthItem, mark: Mark) -> str:
    return (
        f"{format_bytes(item.bytes)} more in each of {item.times} steps: the optimizer's states "
        f"grow by {_tensors(item)}; if it keeps a history, until that is full"
    )


def _cache(item: GrowthItem, mark: Mark) -> str:
    turns = f"each of {item.times} {'steps' if item.per == 'step' else 'turns of a loop'}"
    name = "a cache" if item.holder is None else mark(item.holder)
    return (
        f"{format_bytes(item.bytes)} more in {turns}: {name} grows, {_tensors(item)} made anew "
        f"at {_of(item, mark)}; one that is made once, in full length, does not"
    )


def _keeper(item: GrowthItem, mark: Mark) -> str:
    return "something keeps" if item.holder is None else f"{mark(item.holder)} keeps"


def _tensors(item: GrowthItem | CopyItem) -> str:
    return "1 tensor" if item.tensors == 1 else f"{item.tensors} tensors"


def _of(item: GrowthItem, mark: Mark) -> str:
    return origin(item.op, item.module, item.source, mark)


def _copies(report: Report, mark: Mark) -> Iterator[Fact]:
    for item in report.copies:
        what = "a copy" if item.times == 1 else f"{item.times} copies"
        use = " (an EMA or a target network?)" if item.of == "parameters" else ""
        holder = "" if item.holder is None else f"{mark(item.holder)} is "
        where = f", at {mark(item.source)}" if item.source else ""
        size = format_bytes(item.bytes)
        yield "Copy", f"{size}: {holder}{what} of the {item.of}{use}, {_tensors(item)}{where}"


def _compiled(report: Report, mark: Mark) -> Iterator[Fact]:
    """The same run under torch.compile, beside the eager one."""
    run = report.compiled
    if run is None:
        return
    low, high = format_bytes(run.allocated_bytes.low), format_bytes(run.allocated_bytes.high)
    sizes = f"{low} (all that can be fused is) to {high} (nothing is) allocated"
    graphs = f"{run.graphs} graph{'s' if run.graphs != 1 else ''}"
    at = origin(run.op, run.module, run.source, mark)
    yield "Compiled", f"{sizes}, {graphs}; the higher in step {run.step}, {run.phase}, at {at}"
    if run.saved_bytes or run.eager_saved_bytes:
        saved, eager = map(format_bytes, (run.saved_bytes, run.eager_saved_bytes))
        yield "Compiled", f"forward keeps {saved} for backward, {eager} without torch.compile"


def _device(report: Report, mark: Mark) -> Iterator[Fact]:
    if report.device is not None:
        name, arch = mark(str(report.device["name"])), mark(str(report.device.get("arch") or ""))
        capacity = format_bytes(report.device["capacity_bytes"])
        headroom = report.created_from.get("headroom")
        free = f", {format_bytes(headroom)} of it to stay free" if headroom else ""
        yield "Device", f"{name}{f' ({arch})' if arch else ''} of {capacity}{free}"


def _fits(report: Report, mark: Mark) -> Iterator[Fact]:
    for name, fit in report.fits.items():
        spare = f"{format_bytes(abs(fit.headroom_bytes))} {'to spare' if fit else 'too much'}"
        text = f"{mark(name)}: {'yes' if fit else 'no'}, {spare}"
        if fit.out_of_memory_at is not None:
            text += f", out of memory {_out_of_memory(fit.out_of_memory_at, mark)}"
        yield "Fits", "; ".join((text, *fit.notes))


def _out_of_memory(at: OutOfMemory, mark: Mark) -> str:
    """Who asks for how much when a run ends: ``at aten.mm of layers.0, which asks for ...``."""
    asks = f"asks for {format_bytes(at.requested_bytes)}"
    who = origin(at.op, at.module, at.source, mark)
    if at.op is None:
        return f"before the first operation, where {who} {asks}"
    return f"in step {at.step}, {at.phase}, at {who}, which {asks}"
