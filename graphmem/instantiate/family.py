"""Families: the schedules of one run at many sizes, as few of them traced as may be.

The two ends of a range and a size between them are traced. Where the three are the same but
for numbers, all others follow (``template``); numbers of the second degree take a fourth. Where
they are not, the lowest size is taken for a special one first (a batch of one), then the range
is halved. A size that does not follow is traced like the ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from graphmem.errors import GraphmemError
from graphmem.instantiate.polynomials import DiffersError, TooFewError
from graphmem.instantiate.template import Recorded, Template
from graphmem.schedule import Schedule

Trace = Callable[[int], Recorded]
"""Runs a model at a size."""


class Family:
    """A run at several sizes.

    Args:
        trace: runs it at one; its errors are those of the size.
        sizes: those that will be asked for; others can be, and are traced.
        traced: sizes that were traced before.
    """

    def __init__(
        self, trace: Trace, sizes: Iterable[int], traced: Mapping[int, Recorded] | None = None
    ) -> None:
        self._trace = trace
        self._sizes = sorted(set(sizes))
        self._traced = dict(traced or {})
        self._templates: dict[int, Template] = {}
        self._failed: dict[int, GraphmemError] = {}
        self._is_covered = False

    @property
    def traced(self) -> frozenset[int]:
        """The sizes that were traced so far."""
        return frozenset(self._traced)

    def at(self, size: int) -> Schedule:
        """The schedule at a size, the same as a trace there gives.

        Raises:
            GraphmemError: as the trace raises it.
        """
        if size in self._traced:
            return self._traced[size].schedule
        if not self._is_covered:
            self._is_covered = True
            self._cover(self._sizes, peel=True)
        template = self._templates.get(size)
        if template is not None:
            try:
                return template.at(size)
            except DiffersError:
                pass
        return self._record(size).schedule

    def _record(self, size: int) -> Recorded:
        if size in self._failed:
            raise self._failed[size]
        if size not in self._traced:
            try:
                self._traced[size] = self._trace(size)
            except GraphmemError as error:
                self._failed[size] = error
                raise
        return self._traced[size]

    def _cover(self, sizes: Sequence[int], *, peel: bool) -> None:
        """Find templates for all sizes of a range; those without one are traced when asked for.

        Args:
            peel: the lowest size may be a special one.
        """
        if len(sizes) <= 3:
            return
        middle = self._middle(sizes)
        template = self._template((sizes[0], middle, sizes[-1]), sizes)
        if template is not None:
            self._templates.update(dict.fromkeys(sizes, template))
        elif peel:
            self._cover(sizes[1:], peel=False)
        else:
            at = bisect_left(sizes, middle)
            self._cover(sizes[: at + 1], peel=False)
            self._cover(sizes[at:], peel=False)

    def _middle(self, sizes: Sequence[int]) -> int:
        """A size within, if possible one that was traced, else the one in the middle."""
        centre = (sizes[0] + sizes[-1]) / 2
        within = sizes[1:-1]
        traced = [size for size in within if size in self._traced]
        return min(traced or within, key=lambda size: abs(size - centre))

    def _template(self, at: tuple[int, ...], sizes: Sequence[int]) -> Template | None:
        """The template through some sizes, and one more where these are too few."""
        try:
            return Template(at, [self._record(size) for size in at])
        except TooFewError:
            fourth = self._between(at, sizes)
            return None if fourth is None else self._template(fourth, sizes)
        except (DiffersError, GraphmemError):  # one size may fail where others do not
            return None

    def _between(self, at: tuple[int, ...], sizes: Sequence[int]) -> tuple[int, ...] | None:
        """Sizes with a fourth, in the middle of the widest gap; None if there are enough."""
        if len(at) > 3:
            return None
        left, right = max(pairwise(at), key=lambda gap: gap[1] - gap[0])
        within = [size for size in sizes if left <= size <= right]
        return tuple(sorted((*at, self._middle(within)))) if len(within) > 2 else None
