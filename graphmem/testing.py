"""For test suites: a model is held to its budget by an assertion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmem.as_text import format_bytes, format_tensor
from graphmem.checks import Limits, Outcome, judge
from graphmem.errors import UsageError
from graphmem.options import parse_bytes
from graphmem.render.facts import category_name, peak_moment, peak_size
from graphmem.report import Report

_HOLDERS = 5


def assert_fits(
    model: Any,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget: int | str | None = None,
    device: str | None = None,
    **options: Any,
) -> Report:
    """Assert that a run of a model keeps within a budget, fits on a GPU, or both.

    Nothing runs on a GPU, and the model is left as it was: see ``graphmem.analyze``, which takes
    the other arguments.

    Args:
        model: any nn.Module.
        budget: what PyTorch's allocator may take, in bytes or as ``"4GiB"``.
        device: the GPU that it is to fit on, such as ``"T4"``; its kernels run.

    Returns:
        The report.

    Raises:
        AssertionError: with the reason, the moment of the peak and who holds the memory then.
        UsageError: if there is neither budget nor device.
    """
    from graphmem.analysis import analyze

    __tracebackhide__ = True  # of pytest: the test's own line is what failed
    if budget is None and device is None:
        raise UsageError("assert_fits: give budget=, such as '4GiB', or device=, such as 'T4'")
    limits = Limits(None if budget is None else parse_bytes(budget, "budget"), device)
    report = analyze(model, inputs, kwargs, device=device, **options)
    outcome = judge(report.subject.name, report, limits, before=None)
    if not outcome:
        raise AssertionError(explanation(outcome, report))
    return report


def explanation(outcome: Outcome, report: Report) -> str:
    """Why a model does not keep within its limits: several lines."""
    lines = [f"{outcome.name}: {failure.text}" for failure in outcome.failures]
    lines.append(f"{peak_size(report)}, {peak_moment(report)}; the largest holders:")
    lines += [
        f"  {format_bytes(holder.bytes):>10}  {category_name(holder.category)}, "
        f"{format_tensor(holder.dtype, holder.shape)} of {holder.module}"
        for holder in report.holders[:_HOLDERS]
    ]
    return "\n".join(lines)
