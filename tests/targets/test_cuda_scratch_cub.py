"""The sizes that cub asks for, against those of cub itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphmem import devices
from graphmem.devices import Gpu
from graphmem.targets import Context, context
from graphmem.targets.cuda import cub

T4 = devices.find("T4")
A100 = devices.find("A100-80GB")
RTX3090 = devices.find("RTX 3090")
H100 = devices.find("H100-80GB")
B200 = devices.find("B200")


@pytest.mark.parametrize(
    ("call", "sizes"),
    [
        # 3,000,000 keys of 8 B with values of 8 B, on the A100: tiles of 3,840, so 782.
        # 8 passes * 256 * 8 B + 782 * 256 * 4 B + 2 * 24,000,000 + 256 + 255.
        (
            lambda n, gpu: cub.radix_sort(n, 8, 8, 64, gpu),
            {T4: (1653759, 49108479), A100: (1644543, 48817663), H100: (1639423, 48684543)},
        ),
        (lambda n, gpu: cub.radix_sort(n, 8, 8, 17, gpu), {A100: (1634303, 48807423)}),
        (
            lambda n, gpu: cub.radix_sort(n, 4, 4, 32, gpu),
            {T4: (818175, 24269823), A100: (825343, 24479743), B200: (825343, 24479743)},
        ),
        (
            lambda n, gpu: cub.radix_sort(n, 4, 8, 32, gpu),
            {T4: (1245695, 37100287), RTX3090: (1242623, 37009151), H100: (1228287, 36581119)},
        ),
        (lambda n, gpu: cub.radix_sort(n, 2, 8, 16, gpu), {B200: (1023231, 30550527)}),
        (
            lambda n, gpu: cub.radix_sort(n, 8, 0, 64, gpu),
            {T4: (853759, 25108479), A100: (844543, 24817663), H100: (835327, 24550399)},
        ),
        (lambda n, gpu: cub.segmented_sort(n, 4, 8), {A100: (1200383, 36000255)}),
        (lambda n, gpu: cub.scan(n, 8), {A100: (2815, 54783)}),
        (lambda n, gpu: cub.scan(n, 4), {A100: (1279, 13311)}),
        (lambda n, gpu: cub.scan(n, 2), {A100: (767, 3839)}),
        (
            cub.select_flagged,
            {A100: (1279, 11263), RTX3090: (2047, 38399), H100: (1023, 6655), B200: (1023, 7679)},
        ),
        (
            cub.unique_by_key,
            {A100: (2047, 27903), T4: (6143, 151039), H100: (1535, 11775), B200: (1535, 13567)},
        ),
        (cub.unique, {A100: (1279, 13311), RTX3090: (2047, 38399), B200: (1023, 6655)}),
        (lambda n, gpu: cub.run_length_encode(n), {A100: (3071, 63487)}),
    ],
)
def test_cub_says_the_same(
    call: Callable[[int, Gpu], int], sizes: dict[Gpu, tuple[int, int]]
) -> None:
    """Of cub 3.0.1, run without storage and told each architecture: 100,000 and 3,000,000."""
    for gpu, (small, large) in sizes.items():
        assert (call(100_000, gpu), call(3_000_000, gpu)) == (small, large), gpu.name


def test_what_fits_a_tile_takes_a_byte() -> None:
    """Seen in snapshots: 1 byte for 512 and 2,048 indices, and for counts of up to 4,096."""
    assert cub.radix_sort(2304, 8, 8, 64, A100) == 1
    assert cub.radix_sort(2305, 8, 8, 64, A100) > 1
    assert cub.radix_sort(4864, 4, 4, 32, A100) == 1
    assert cub.reduce(4096, 1, A100) == 1
    assert cub.reduce(2049, 8, A100) == 17663


def test_one_pass_needs_no_copies() -> None:
    # 100,000 keys of up to 8 bits: 256 * 8 B, 27 tiles * 1,024 B, a counter of 4 B.
    assert cub.radix_sort(100_000, 8, 8, 8, A100) == 2048 + 27 * 1024 + 256 + 255


def test_counts_and_scans_that_were_seen() -> None:
    """On an A100: 17,663 to count what is not zero, 1,023 to sum few int32, 1,279 by key."""
    assert cub.reduce(100_000, 1, A100) == 17663
    assert cub.scan(100, 4) == 1023
    assert cub.scan_by_key(32) == 1279


def test_scans_by_key_are_bounded() -> None:
    """cub itself: 1,791 and 9,215 on the A100, 2,047 and 11,775 before it at most."""
    assert 1791 <= cub.scan_by_key(100_000) <= 2047
    assert 11775 <= cub.scan_by_key(1_234_567) <= 12799


def test_short_keys_on_older_gpus_are_a_stated_bound() -> None:
    told = Context()
    with context.active(told):
        # 108 * 8 blocks of 256 threads, times 5, 128 digits of 8 B: 4,423,680.
        assert cub.radix_sort(5000, 2, 8, 16, A100) == 4423680 + 10240 + 40192 + 255
    (unknown,) = told.unknown
    assert unknown.bytes == 4423680
