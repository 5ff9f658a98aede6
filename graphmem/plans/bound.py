"""Which combinations can't fit: the least that they leave of each moment of the run as it is.

A technique may leave of each category no less than a share (``Technique.least``); those of a
combination multiply. What is left of any moment has to fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphmem.plans.technique import Technique
from graphmem.schedule import Category, Phase, Schedule

_CATEGORIES = tuple(Category)


class Bound:
    """The bytes of each category at each operation of a run, by phase."""

    def __init__(self, schedule: Schedule) -> None:
        count = len(schedule.operations)
        change = np.zeros((count + 1, len(_CATEGORIES)))
        for storage in schedule.storages:
            if not storage.host:
                column = _CATEGORIES.index(storage.category)
                change[max(storage.born, 0), column] += storage.nbytes
                if storage.freed is not None:
                    change[storage.freed + 1, column] -= storage.nbytes
        live = change[:count].cumsum(axis=0)
        phases = np.array([op.phase for op in schedule.operations])
        self._live: dict[Phase, npt.NDArray[np.float64]] = {
            phase: live[phases == phase] for phase in Phase if (phases == phase).any()
        }

    def bytes_of(self, techniques: Sequence[Technique]) -> int:
        """No less than this is needed with some techniques."""
        return max(
            int((live @ _shares(techniques, phase)).max()) for phase, live in self._live.items()
        )


def _shares(techniques: Sequence[Technique], phase: Phase) -> npt.NDArray[np.float64]:
    """What may be left of each category in a phase."""
    shares = np.ones(len(_CATEGORIES))
    for technique in techniques:
        if technique.phases is None or phase in technique.phases:
            for category, share in technique.least.items():
                shares[_CATEGORIES.index(category)] *= share
    return shares
