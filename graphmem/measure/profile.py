"""What a real run on the CPU allocates, from torch's own profiler.

``torch.profiler(profile_memory=True)`` reports every allocation and release of
c10/core/CPUAllocator.cpp with its size as it was asked for, under the operator that made
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

from graphmem.measure.stream import Event
from graphmem.trace.session import collector_off, random_state_kept


def profiled(run: Callable[[], None]) -> list[Event]:
    """The allocations (positive) and releases (negative bytes) of a run, in order.

    As in a trace, Python's garbage collector is off and the random seed is fixed.
    """
    with random_state_kept(), collector_off(), profile(
        activities=[ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        run()
    tree = profiler.profiler.kineto_results.experimental_event_tree()  # type: ignore[union-attr]
    found = sorted(_allocations(tree, ()), key=lambda pair: pair[0].start_time_ns)
    return [
        Event(node.extra_fields.alloc_size, node.extra_fields.ptr, path) for node, path in found
    ]


def _allocations(
    nodes: Iterable[Any], path: tuple[str, ...]
) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Depth first, without recursion: the events of deep models nest deeply."""
    stack = [(node, path) for node in nodes]
    while stack:
        node, above = stack.pop()
        if node.tag == _EventType.Allocation:
            yield node, above
        else:
            below = (*above, node.name)
            stack.extend((child, below) for child in node.children)
