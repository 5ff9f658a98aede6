"""What a run has to fit into: a GPU, a budget of bytes, or both."""

from __future__ import annotations

from dataclasses import dataclass

from graphmem import liveness
from graphmem.as_text import format_bytes
from graphmem.errors import UsageError
from graphmem.fits import fit_on, fit_within, gpu_of, limit_on, place_on, place_within
from graphmem.options import Options, Target
from graphmem.report import Fit, Peak
from graphmem.schedule import BEFORE, Category, Schedule, Storage
from graphmem.summary import peak_and_breakdown


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of the GPU that the options name, and ``budget`` bytes of segments.

    At least one of them is given. With both a run has to fit into both.

    Raises:
        UsageError: if there is neither, or the target is no GPU.
    """

    options: Options
    budget: int | None = None

    def __post_init__(self) -> None:
        if self.options.target is not Target.CUDA:
            raise UsageError("what fits is asked of a GPU: leave the target cuda")
        if self.options.device is None and self.budget is None:
            raise UsageError("into what? name a GPU with device, or give a budget such as 20GiB")
        if self.budget is not None and self.budget <= self.options.headroom:
            raise UsageError(f"budget {self.budget}: nothing is left of it beside the headroom")

    @property
    def name(self) -> str:
        """As it is called in a sentence."""
        return self.options.device or "the budget"

    @property
    def allowed_bytes(self) -> int:
        """The bytes that PyTorch's allocator may take."""
        limits = [] if self.budget is None else [self.budget - self.options.headroom]
        if self.options.device is not None:
            limits.append(limit_on(self.options, gpu_of(self.options)))
        return min(limits)

    def check(self, schedule: Schedule) -> None:
        """Refuse what can't be enough for any size.

        Raises:
            UsageError: if the model's parameters and buffers alone are too much.
        """
        needed = standing_bytes(schedule)
        if needed > self.allowed_bytes:
            raise UsageError(
                f"{self.name} has {format_bytes(self.allowed_bytes)} for the run; the "
                f"parameters and buffers alone take {format_bytes(needed)}"
            )

    def fit(self, schedule: Schedule) -> Fit:
        """Whether a run fits; of both, where less is left."""
        fits = []
        if self.options.device is not None:
            fits.append(fit_on(schedule, self.options, gpu_of(self.options)))
        if self.budget is not None:
            fits.append(fit_within(schedule, self.options, self.budget))
        return min(fits, key=lambda fit: (fit.fits, fit.headroom_bytes))

    def fits(self, schedule: Schedule) -> bool:
        """As ``fit``, without what is left or lacking, in a part of its time."""
        options, placements = self.options, []
        if options.device is not None:
            gpu = gpu_of(options)
            reserve = gpu.context_bytes[1] + options.headroom
            placements.append(place_on(schedule, options, gpu, reserve))
        if self.budget is not None:
            placements.append(place_within(schedule, options, self.budget))
        return all(placement.shortage is None for placement in placements)

    def peak(self, schedule: Schedule) -> tuple[Peak, dict[str, int]]:
        """The worst moment, as ``analyze`` gives it, and the bytes live then by category."""
        if self.options.device is not None or self.budget is None:
            return peak_and_breakdown(schedule, self.options)
        placement = place_within(schedule, self.options, self.budget)
        return peak_and_breakdown(schedule, self.options, placement)


def standing_bytes(schedule: Schedule) -> int:
    """The parameters and buffers of a run."""
    own = (Category.PARAMETERS, Category.BUFFERS)
    return sum(s.nbytes for s in schedule.storages if s.category in own and _stands(s))


def _stands(storage: Storage) -> bool:
    """Whether a storage lies in the GPU's memory before the first operation."""
    return storage.born == BEFORE and not storage.host


def least_bytes(schedule: Schedule) -> int:
    """What any allocator has to have for a run: the tensors of its worst moment, unrounded."""
    none = [0] * len(schedule.operations)
    return liveness.measure(
        schedule, lambda storage: 0 if storage.host else storage.nbytes, scratch=none
    ).peak_bytes


def requested_bytes(schedule: Schedule) -> int:
    """As ``least_bytes``, with what the kernels take for themselves."""
    return liveness.measure(
        schedule, lambda storage: 0 if storage.host else storage.nbytes
    ).peak_bytes
