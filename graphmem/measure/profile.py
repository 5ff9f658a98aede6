"""What a real run on the CPU allocates, from torch's own profiler.

``torch.profiler(profile_memory=True)`` reports every allocation and release of
c10/core/CPUAllocator.cpp with its size as it was asked for, under the operator that made
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

from graphmem import collector
from graphmem.measure.stream import Event, Stream
from graphmem.trace.left import random_state_kept


def profiled(run: Callable[[], None]) -> Stream:
    """The allocations and releases of a run.

    As in a trace, Python's garbage collector is off and the random seed is fixed.
    """
    with (
        random_state_kept(),
        collector.set_aside(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        run()
    results = profiler.profiler.kineto_results
    return _as_stream(results.experimental_event_tree())


def _as_stream(roots: Iterable[Any]) -> Stream:
    """Walk the tree without recursion: the events of deep models nest deeply."""
    calls: list[Any] = []
    events: list[tuple[Any, tuple[int, ...]]] = []
    stack: list[tuple[Any, tuple[int, ...]]] = [(root, ()) for root in roots]
    while stack:
        node, above = stack.pop()
        if node.tag == _EventType.Allocation:
            events.append((node, above))
            continue
        below = (*above, len(calls))
        calls.append(node)
        stack.extend((child, below) for child in node.children)
    order = sorted(range(len(calls)), key=lambda number: (calls[number].start_time_ns, number))
    rank = {number: position for position, number in enumerate(order)}
    events.sort(key=lambda pair: pair[0].start_time_ns)
    return Stream(
        tuple(
            Event(node.extra_fields.alloc_size, node.extra_fields.ptr, tuple(map(rank.get, above)))  # type: ignore[arg-type]
            for node, above in events
        ),
        tuple(calls[number].name for number in order),
    )
