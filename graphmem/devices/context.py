"""What a process holds of a GPU outside PyTorch's allocator: a range, by GPU.

It is the CUDA context and the kernels that were loaded (lazily, since CUDA 11.7), so it
grows with what runs. cuFFT's plans and NCCL's buffers are not in it: they take up to some
GiB more.

Source: what processes of torch 2.1 and later held beside the allocator's bytes, mostly
computed from public out-of-memory messages (in use, less allocated, less reserved but
unallocated: within 15 MiB), of single processes without NCCL and cuFFT; two by nvidia-smi:
RTX 6000 Ada (unslothai/unsloth-zoo#1053) and RTX 3090 (invoke-ai/InvokeAI#9413).
"""

from __future__ import annotations

from collections.abc import Iterable

MIB = 1 << 20

_Capability = tuple[int, int]
_Range = tuple[int, int]

_MEASURED: dict[str, tuple[_Capability, _Range]] = {
    "A100": ((8, 0), (512, 531)),
    "B200": ((10, 0), (712, 712)),
    "H200": ((9, 0), (522, 680)),
    "L40S": ((8, 9), (495, 514)),
    "RTX 3090": ((8, 6), (256, 315)),
    "RTX 4090": ((8, 9), (440, 461)),
    "RTX 5090": ((12, 0), (592, 614)),
    "RTX 6000 Ada": ((8, 9), (399, 426)),
    "T4": ((7, 5), (114, 154)),
    "V100": ((7, 0), (368, 368)),
}
"""A GPU's model -> its compute capability, and the least and the most MiB that were seen."""


def context_of(model: str, capability: _Capability) -> tuple[_Range, str]:
    """The bytes of a GPU's context, least and most, and where the range is from.

    That of the model itself if it was measured, else of all measured models of its compute
    capability, else of those of the same major capability, else of all.

    Args:
        model: the GPU's name without its memory: ``"A100"``.
    """
    own = {name: span for name, (_, span) in _MEASURED.items() if name == model}
    same = {name: span for name, (at, span) in _MEASURED.items() if at == capability}
    major = {name: span for name, (at, span) in _MEASURED.items() if at[0] == capability[0]}
    every = {name: span for name, (_, span) in _MEASURED.items()}
    number = ".".join(map(str, capability))
    if own:
        return _bytes(own.values()), "measured"
    if same:
        return _bytes(same.values()), f"of {_names(same)}, compute capability {number} too"
    if major:
        return _bytes(
            major.values()
        ), f"of {_names(major)}, compute capability {capability[0]}.x too"
    return _bytes(every.values()), "of all GPUs that were measured: none has this architecture"


def _bytes(spans: Iterable[_Range]) -> _Range:
    lows, highs = zip(*spans, strict=True)
    return min(lows) * MIB, max(highs) * MIB


def _names(found: Iterable[str]) -> str:
    return ", ".join(sorted(found))
