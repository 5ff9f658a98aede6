"""Which combinations can't fit: the least that they leave of each moment of the run as it is.

A technique may leave of each category no less than a share (``Technique.least``), of all
storages or of those in its scope; those of a combination multiply. What is left of any moment
has to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graphmem.plans.technique import Technique
from graphmem.schedule import Category, Phase, Schedule, Storage

Scope = Callable[[Storage], bool]
_Kind = tuple[Category, frozenset[Scope]]
"""A category, and the scopes that a storage is in."""
_Shares = npt.NDArray[np.float64]
"""[2, kinds]: while the optimizer steps, and elsewhere."""


class Bound:
    """The bytes of each kind of storage at each operation of a run.

    Args:
        scopes: those of all techniques that will be asked about.
    """

    def __init__(self, schedule: Schedule, scopes: Sequence[Scope] = ()) -> None:
        kinds: dict[_Kind, int] = {}
        columns: list[tuple[Storage, int]] = []
        for storage in schedule.storages:
            if not storage.host:
                kind = storage.category, frozenset(scope for scope in scopes if scope(storage))
                columns.append((storage, kinds.setdefault(kind, len(kinds))))
        self._kinds = tuple(kinds)
        self._known: dict[str, tuple[_Shares, _Shares]] = {}
        live = _live(columns, len(schedule.operations), len(kinds))
        steps = np.array([op.phase is Phase.OPTIMIZER for op in schedule.operations], dtype=bool)
        self._elsewhere, self._in_step = _largest(live[~steps]), _largest(live[steps])

    def bytes_of(self, techniques: Sequence[Technique]) -> int:
        """No less than this is needed with some techniques."""
        return self._most([self._shares(technique)[0] for technique in techniques])

    def likely_bytes_of(self, techniques: Sequence[Technique]) -> int:
        """About so much is likely to be needed."""
        return self._most([self._shares(technique)[1] for technique in techniques])

    def _most(self, shares: Sequence[_Shares]) -> int:
        """The largest moment, of which two shares [kinds] are left: in the step, and elsewhere."""
        left = np.ones((2, len(self._kinds)))
        for share in shares:
            left = left * share
        in_step, elsewhere = (self._in_step @ left[0], self._elsewhere @ left[1])
        return int(max(in_step.max(initial=0.0), elsewhere.max(initial=0.0)))

    def _shares(self, technique: Technique) -> tuple[_Shares, _Shares]:
        """What a technique may leave, and what it likely leaves."""
        if technique.name not in self._known:
            least, in_step = technique.least, technique.least_in_step
            likely = {**least, **technique.likely}
            both = (self._of(technique, least, in_step), self._of(technique, likely, in_step))
            self._known[technique.name] = both
        return self._known[technique.name]

    def _of(
        self,
        technique: Technique,
        shares: Mapping[Category, float],
        in_step: Mapping[Category, float],
    ) -> _Shares:
        found = np.ones((2, len(self._kinds)))
        for column, (category, scopes) in enumerate(self._kinds):
            if technique.scope is None or technique.scope in scopes:
                share = shares.get(category, 1.0)
                found[:, column] = share * in_step.get(category, 1.0), share
        return found


def _live(
    columns: Sequence[tuple[Storage, int]], operations: int, kinds: int
) -> npt.NDArray[np.float64]:
    """Live bytes [operations, kinds]."""
    change = np.zeros((operations + 1, kinds))
    for storage, column in columns:
        change[max(storage.born, 0), column] += storage.nbytes
        if storage.freed is not None:
            change[storage.freed + 1, column] -= storage.nbytes
    return change[:operations].cumsum(axis=0)


def _largest(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The rows that no other one is as large as in every column: the rest are never the most."""
    rows = np.unique(rows, axis=0)
    kept = np.empty((0, rows.shape[1]))
    while len(rows):
        largest = rows[rows.sum(axis=1).argmax()]
        kept = np.vstack([kept, largest])
        rows = rows[(rows > largest).any(axis=1)]
    return kept
