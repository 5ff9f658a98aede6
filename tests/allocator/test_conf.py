"""PYTORCH_ALLOC_CONF: PyTorch's syntax, limits and messages."""

from __future__ import annotations

import pytest

from graphmem.allocator import AllocatorSettings, parse_alloc_conf
from graphmem.errors import UsageError

MIB = 1 << 20


def test_nothing_given_is_pytorchs_defaults() -> None:
    assert parse_alloc_conf("") == AllocatorSettings()
    assert AllocatorSettings().large_segment_bytes == 20_971_520
    assert AllocatorSettings().non_split_rounding_bytes == 20_971_520


def test_every_key_that_changes_device_memory_is_read() -> None:
    settings = parse_alloc_conf(
        "expandable_segments:True,max_split_size_mb:128, max_non_split_rounding_mb:64,"
        "large_segment_size_mb:32,garbage_collection_threshold:0.8,"
        "per_process_memory_fraction:0.5,roundup_power2_divisions:4"
    )
    assert settings == AllocatorSettings(
        max_split_bytes=128 * MIB,
        max_non_split_rounding_bytes=64 * MIB,
        large_segment_bytes=32 * MIB,
        roundup_power2_divisions=(4,) * 16,
        garbage_collection_threshold=0.8,
        expandable_segments=True,
        memory_fraction=0.5,
    )


@pytest.mark.parametrize(
    ("text", "table"),
    [
        # 256 MiB is interval 8, 512 MiB is 9; what is below the first takes its number.
        ("[256:1,512:2,>:4]", (1,) * 9 + (2,) + (4,) * 6),
        ("[64:8,128:2,256:4,512:2,1024:4,>:1]", (8,) * 7 + (2, 4, 2, 4) + (1,) * 5),
        ("[>:4]", (0,) + (4,) * 15),
        ("[4:0]", (0,) * 16),
        ("[1048576:2]", (2,) * 16),  # beyond 64 GiB: the last interval
        ("[4:4,]", (4, 4, 4) + (0,) * 13),
    ],
)
def test_roundup_divisions_by_interval(text: str, table: tuple[int, ...]) -> None:
    assert parse_alloc_conf(f"roundup_power2_divisions:{text}").roundup_power2_divisions == table


def test_the_large_segment_size_counts_wherever_it_stands() -> None:
    with pytest.raises(UsageError, match="max_split_size_mb too small, must be >= 30"):
        parse_alloc_conf("max_split_size_mb:25,large_segment_size_mb:30")
    assert parse_alloc_conf("large_segment_size_mb:30").non_split_rounding_bytes == 30 * MIB


def test_keys_that_change_no_device_memory_are_taken() -> None:
    text = "backend:native,pinned_num_register_threads:8,throw_on_cudamalloc_oom:True,"
    assert parse_alloc_conf(text) == AllocatorSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "max_split_size_mb:19",
            "CachingAllocator option max_split_size_mb too small, must be >= 20",
        ),
        (
            "max_non_split_rounding_mb:19",
            "CachingAllocator option max_non_split_rounding_mb too small, must be >= 20",
        ),
        (
            "large_segment_size_mb:10",
            "CachingAllocator option large_segment_size_mb must be > 10 MB",
        ),
        ("roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2"),
        ("roundup_power2_divisions:0", "For roundups, the divisions has to be power of 2"),
        (
            "roundup_power2_divisions:[4:3]",
            "For roundups, the divisions has to be power of 2 or 0 to disable roundup",
        ),
        ("roundup_power2_divisions:[3:4]", "For roundups, the intervals have to be power of 2"),
        (
            "garbage_collection_threshold:1.0",
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)",
        ),
        ("garbage_collection_threshold:nan", "garbage_collect_threshold is invalid"),
        ("per_process_memory_fraction:2", "is invalid, set it in [0.0, 1.0]"),
        ("expandable_segments:true", "Expected 'True' or 'False' but got 'true'"),
    ],
)
def test_a_value_that_pytorch_refuses_has_its_message(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_alloc_conf(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "max_splt_size_mb:30",
            "Unrecognized key 'max_splt_size_mb' in Accelerator allocator config; "
            "did you mean 'max_split_size_mb'?",
        ),
        ("expandable_segment=True", "did you mean 'expandable_segments'?"),
        ("nonsense", "Unrecognized key 'nonsense' in Accelerator allocator config"),
        ("max_split_size_mb", "expected key:value"),
        ("max_split_size_mb:", "expected key:value"),
        ("max_split_size_mb=64", "expected key:value"),
        (",", "expected key:value"),
        ("roundup_power2_divisions:[4:4", "expected key:value"),
        ("roundup_power2_divisions:[4]", "expected interval:divisions, not '4'"),
        ("max_split_size_mb:big", "max_split_size_mb takes a whole number, not 'big'"),
        ("max_split_size_mb:-1", "takes a whole number, not '-1'"),
        ("garbage_collection_threshold:high", "takes a number, not 'high'"),
        ("backend:cudaMallocAsync", "only backend:native is"),
    ],
)
def test_what_can_not_be_read_is_one_line_with_the_nearest_key(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_alloc_conf(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
