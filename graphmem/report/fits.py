"""Whether a run fits on a GPU, as a report says it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphmem.errors import UsageError


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The request at which a run ends, and who makes it.

    ``step``, ``phase`` and ``op`` are None, and ``op_index`` is -1, where not even what
    stands in memory before the first operation (weights, inputs) has its place.
    """

    step: int | None
    phase: str | None
    op: str | None
    op_index: int
    module: str
    source: str | None
    requested_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a run fits on a GPU; true in a condition if it does.

    Decided on the bytes reserved plus the most that the CUDA context was seen to take, with
    free segments given back near the capacity. ``headroom_bytes`` is what is left then,
    besides the headroom that was asked for; negative where the run does not fit: with that
    much more memory it does. ``notes`` are sentences on what the answer depends on.
    """

    device: str
    fits: bool
    headroom_bytes: int
    out_of_memory_at: OutOfMemory | None
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.fits

    def to_dict(self) -> dict[str, Any]:
        """The fit as JSON values; the device's name is the key that it stands under."""
        values = asdict(self)
        del values["device"]
        return values


class Fits(Mapping[str, Fit]):
    """The answer for the GPU that was named, by its name; called, for any other.

    ``ask`` finds such an answer; None where the run is not one of CUDA.
    """

    def __init__(
        self, known: Mapping[str, Fit] | None = None, ask: Callable[[str], Fit] | None = None
    ) -> None:
        self._known = dict(known or {})
        self._ask = ask

    @property
    def can_ask(self) -> bool:
        """Whether it can be called: the run is one of CUDA, and was not read from a file."""
        return self._ask is not None

    def __call__(self, device: str) -> Fit:
        """Whether the run fits on a GPU, by any of its names, or into ``"20GiB"``.

        The kernels stay those of the GPU that was analyzed for; where this one has another
        architecture, the answer says so in its ``notes``.

        Raises:
            UsageError: for an unknown GPU, with the nearest names, and for a run that is not
                of CUDA.
        """
        if self._ask is None:
            raise UsageError(
                "fits: only the report of an analysis on target cuda tells what fits on a GPU"
            )
        return self._ask(device)

    def __getitem__(self, name: str) -> Fit:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"Fits({self._known!r})"
