"""What is known of one GPU."""

from __future__ import annotations

from dataclasses import dataclass

_ARCHITECTURES = {
    (6, 0): "Pascal",
    (6, 1): "Pascal",
    (7, 0): "Volta",
    (7, 5): "Turing",
    (8, 0): "Ampere",
    (8, 6): "Ampere",
    (8, 7): "Ampere",
    (8, 9): "Ada",
    (9, 0): "Hopper",
    (10, 0): "Blackwell",
    (10, 3): "Blackwell",
    (11, 0): "Blackwell",
    (12, 0): "Blackwell",
    (12, 1): "Blackwell",
}
"""Compute capability -> NVIDIA's name. Source: https://developer.nvidia.com/cuda-gpus."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as CUDA describes it; all sizes are integers of bytes.

    ``capacity_bytes`` is ``torch.cuda.get_device_properties(0).total_memory``, less than the
    marketing number, known within ``capacity_error_bytes`` (0: exactly) from the public
    report ``capacity_source``; a driver of another version may differ by some ten MiB.
    ``context_bytes`` is the range of what a process holds outside PyTorch's allocator (CUDA
    context and loaded kernels), with its source in ``context_source``. ``aliases`` are other
    names; one that several GPUs share names none of them.
    """

    name: str
    compute_capability: tuple[int, int]
    capacity_bytes: int
    multiprocessors: int
    l2_cache_bytes: int
    sm_clock_khz: int
    memory_clock_khz: int
    context_bytes: tuple[int, int]
    context_source: str
    full_name: str = ""
    aliases: tuple[str, ...] = ()
    kind: str = "data centre"
    capacity_source: str = ""
    capacity_error_bytes: int = 0

    @property
    def sm(self) -> int:
        """The compute capability as one number: 80 for SM 8.0."""
        major, minor = self.compute_capability
        return 10 * major + minor

    @property
    def arch(self) -> str:
        """The architecture as the report names it: ``"sm_80"``."""
        return f"sm_{self.sm}"

    @property
    def architecture(self) -> str:
        """NVIDIA's name of the architecture: ``"Ampere"``."""
        return _ARCHITECTURES[self.compute_capability]
