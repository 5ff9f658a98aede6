"""PYTORCH_ALLOC_CONF: the allocator's settings in PyTorch's own syntax.

The grammar, the limits and the messages are PyTorch's (``AcceleratorAllocatorConfig::
parseArgs`` in c10/core/AllocatorConfig.cpp, ``CUDAAllocatorConfig::parseArgs`` in
c10/cuda/CUDAAllocatorConfig.cpp). Where a key is not known, a CUDA build of torch refuses
it and a CPU build says nothing; here it is always an error, since a setting with a slip in
it would be predicted as if it had not been given. Where PyTorch fails with an internal
assertion (a missing value, a missing bracket), the message is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from graphmem.allocator.settings import INTERVALS, MIB, MIN_LARGE_BYTES, AllocatorSettings
from graphmem.errors import UsageError
from graphmem.options import nearest

_SETTING = re.compile(r"([^,:\[\]]+):(\[[^\[\]]*\]|[^,:\[\]]+)(?:,|$)")
"""``key:value`` or ``key:[value,...]``, and the comma after it."""


def parse_alloc_conf(text: str) -> AllocatorSettings:
    """The settings of ``expandable_segments:True,max_split_size_mb:128``.

    Raises:
        UsageError: for an unknown key, a value that PyTorch refuses, or a wrong form.
    """
    given = _split("".join(text.split()))
    settings = AllocatorSettings()
    # parseArgs reads this key first: the others must not be below it.
    for key, value in sorted(given, key=lambda item: item[0] != "large_segment_size_mb"):
        settings = replace(settings, **_KEYS[key](key, value, settings))
    return settings


def _split(text: str) -> list[tuple[str, str]]:
    """The keys and values, in order.

    Raises:
        UsageError: where the text is not a list of ``key:value``, or a key is not known.
    """
    given, at = [], 0
    while at < len(text):
        found = _SETTING.match(text, at)
        key = found[1] if found else re.split(r"[,:\[\]=]", text[at:], maxsplit=1)[0]
        if key and key not in _KEYS:
            raise _wrong(
                f"Unrecognized key '{key}' in Accelerator allocator config{nearest(key, _KEYS)}"
            )
        if found is None:
            raise _wrong(f"expected key:value,key:[value,...] at {text[at : at + 40]!r}")
        given.append((found[1], found[2]))
        at = found.end()
    return given


def _wrong(message: str) -> UsageError:
    return UsageError(f"allocator settings: {message}")


def _is_power_of_2(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


# -- values


def _size_mb(key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise _wrong(f"{key} takes a whole number, not {value!r}")
    return int(value)


def _fraction(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise _wrong(f"{key} takes a number, not {value!r}") from None


def _bool(key: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise _wrong(f"{key}: Expected 'True' or 'False' but got '{value}'")
    return value == "True"


# -- keys


def _large_segment(key: str, value: str, _: AllocatorSettings) -> dict[str, Any]:
    size = _size_mb(key, value) * MIB
    if size <= MIN_LARGE_BYTES:
        raise _wrong(f"CachingAllocator option {key} must be > {MIN_LARGE_BYTES // MIB} MB")
    return {"large_segment_bytes": size}


def _at_least_a_segment(field: str) -> Callable[[str, str, AllocatorSettings], dict[str, Any]]:
    def parse(key: str, value: str, settings: AllocatorSettings) -> dict[str, Any]:
        size, least = _size_mb(key, value) * MIB, settings.large_segment_bytes
        if size < least:
            raise _wrong(f"CachingAllocator option {key} too small, must be >= {least // MIB}")
        return {field: size}

    return parse


def _threshold(key: str, value: str, _: AllocatorSettings) -> dict[str, Any]:
    threshold = _fraction(key, value)
    if not 0 < threshold < 1:
        raise _wrong("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")
    return {key: threshold}


def _memory_fraction(key: str, value: str, _: AllocatorSettings) -> dict[str, Any]:
    fraction = _fraction(key, value)
    if not 0 <= fraction <= 1:
        raise _wrong(f"{key} is invalid, set it in [0.0, 1.0]")
    return {"memory_fraction": fraction}


def _expandable(key: str, value: str, _: AllocatorSettings) -> dict[str, Any]:
    return {key: _bool(key, value)}


def _roundup(key: str, value: str, _: AllocatorSettings) -> dict[str, Any]:
    """One number for all intervals, or ``[256:1,512:2,>:4]`` in MiB.

    Source: ``parseRoundUpPower2Divisions``.
    """
    if value.startswith("["):
        return {key: _intervals(key, value[1:-1])}
    divisions = _size_mb(key, value)
    if not _is_power_of_2(divisions):
        raise _wrong("For roundups, the divisions has to be power of 2")
    return {key: (divisions,) * INTERVALS}


def _intervals(key: str, text: str) -> tuple[int, ...]:
    table, last, first = [0] * INTERVALS, 0, True
    for item in filter(None, text.split(",")):
        boundary, colon, value = item.partition(":")
        if not colon:
            raise _wrong(f"{key}: expected interval:divisions, not {item!r}")
        divisions = _divisions(key, value)
        if boundary == ">":
            table[last + 1 :] = [divisions] * (INTERVALS - last - 1)
            continue
        last = _index(key, boundary)
        start = 0 if first else last
        table[start : last + 1] = [divisions] * (last + 1 - start)
        first = False
    return tuple(table)


def _divisions(key: str, value: str) -> int:
    divisions = _size_mb(key, value)
    if divisions and not _is_power_of_2(divisions):
        raise _wrong("For roundups, the divisions has to be power of 2 or 0 to disable roundup")
    return divisions


def _index(key: str, boundary: str) -> int:
    size_mb = _size_mb(key, boundary)
    if not _is_power_of_2(size_mb):
        raise _wrong("For roundups, the intervals have to be power of 2")
    return min(size_mb.bit_length() - 1, INTERVALS - 1)


def _backend(key: str, value: str, _: AllocatorSettings) -> dict[str, Any]:
    if value != "native":
        raise _wrong(f"{key}:{value} is not modelled, only backend:native is")
    return {}


def _no_effect(key: str, value: str, _: AllocatorSettings) -> dict[str, Any]:
    """A key that changes no device memory: pinned host memory, locks, error texts."""
    return {}


_KEYS: dict[str, Callable[[str, str, AllocatorSettings], dict[str, Any]]] = {
    "large_segment_size_mb": _large_segment,
    "max_split_size_mb": _at_least_a_segment("max_split_bytes"),
    "max_non_split_rounding_mb": _at_least_a_segment("max_non_split_rounding_bytes"),
    "garbage_collection_threshold": _threshold,
    "roundup_power2_divisions": _roundup,
    "expandable_segments": _expandable,
    "per_process_memory_fraction": _memory_fraction,
    "backend": _backend,
    "throw_on_cudamalloc_oom": _no_effect,
    "graph_capture_record_stream_reuse": _no_effect,
    "release_lock_on_cudamalloc": _no_effect,
    "pinned_use_cuda_host_register": _no_effect,
    "pinned_free_catch_all": _no_effect,
    "pinned_num_register_threads": _no_effect,
    "pinned_reserve_segment_size_mb": _no_effect,
    "pinned_use_background_threads": _no_effect,
    "pinned_max_round_threshold_mb": _no_effect,
    "pinned_max_cached_size_mb": _no_effect,
}
