"""A user's own loop run for real beside its prediction, as ``graphmem.measure.cpu`` does models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphmem.measure.cpu import Verification, compare
from graphmem.measure.profile import profiled
from graphmem.resolve import make_options
from graphmem.trace import known
from graphmem.trace.reach import reachable
from graphmem.trace.run import trace_callable

STEPS = 2


def verify_loop(make: Callable[[], Callable[[], Any]]) -> Verification:
    """Two steps of a loop for real on the CPU, and of another of its kind in a trace."""
    step, real = make(), make()
    schedule = trace_callable(step, make_options(target="cpu", steps=STEPS))
    start = resident_bytes(real)
    returned: list[Any] = [None]

    def run() -> None:
        for _ in range(STEPS):
            returned[0] = real()

    return compare(schedule, profiled(run), start)


def resident_bytes(step: Callable[[], Any]) -> int:
    """The bytes of all storages that a step reaches before it is first run."""
    found = reachable(step)
    held: list[Any] = [tensor for _, tensor in found.tensors]
    for _, module in found.modules:
        held += [*module.parameters(), *module.buffers()]
    held += [list(state.values()) for o in found.optimizers for state in o.state.values()]
    parts = known.parts_in(held)
    storages = {p.untyped_storage()._cdata: p.untyped_storage() for p in parts}
    return sum(storage.nbytes() for storage in storages.values())
