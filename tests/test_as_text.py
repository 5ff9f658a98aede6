"""Tests of graphmem.as_text."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.as_text import (
    format_bytes,
    format_count,
    format_decimal,
    format_share,
    format_tensor,
    shorten,
    shorten_dotted,
    shorten_path,
)

UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4, "PiB": 1024**5}


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (1024**2 - 1, "1.00 MiB"),  # 1023.999 KiB is not written as 1024.00 KiB
        (1024**2, "1.00 MiB"),
        (1002 * 1024**2, "1002.00 MiB"),
        (15_365_245_829, "14.31 GiB"),  # 15365245829 / 2^30 = 14.31
        (3 * 1024**4, "3.00 TiB"),
        (5000 * 1024**5, "5000.00 PiB"),
        (-512, "-512 B"),
        (-3 * 1024**2, "-3.00 MiB"),
    ],
)
def test_bytes_have_a_binary_unit_and_two_decimals(nbytes: int, text: str) -> None:
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("nbytes", "options", "text"),
    [
        (14 * 10**9, {}, "14.00 GB"),
        (999, {}, "999 B"),
        (1000, {}, "1.00 kB"),
        (1_474_000, {}, "1.47 MB"),
        (4 * 10**8, {"decimals": 1, "unit": "GB"}, "0.4 GB"),
        (6_442_450_944, {"decimals": 0, "unit": "GB"}, "6 GB"),
        (-2500, {"unit": "kB"}, "-2.50 kB"),
    ],
)
def test_bytes_in_powers_of_a_thousand(nbytes: int, options: dict[str, Any], text: str) -> None:
    assert format_decimal(nbytes, **options) == text


@pytest.mark.parametrize(("nbytes", "text"), [(2048, "+2.00 KiB"), (0, "0 B"), (-1, "-1 B")])
def test_a_difference_is_written_with_its_sign(nbytes: int, text: str) -> None:
    assert format_bytes(nbytes, signed=True) == text


def test_halves_are_rounded_up_without_floating_point() -> None:
    # 1 KiB = 1024 B, so 0.005 KiB = 5.12 B: 1029 B is 1.0049 KiB and 1030 B is 1.0059 KiB.
    assert [format_bytes(1029), format_bytes(1030)] == ["1.00 KiB", "1.01 KiB"]
    # 2^53 + 1 bytes is no float64; 2^50 * 8 + 1 is 8.00 PiB
    assert format_bytes(2**53 + 1) == "8.00 PiB"


@given(st.integers(-(2**59), 2**59))
def test_the_text_is_the_number_within_half_of_its_last_digit(nbytes: int) -> None:
    number, unit = format_bytes(nbytes).split(" ")
    half = Fraction(0) if unit == "B" else Fraction(UNITS[unit], 200)
    assert abs(Fraction(number) * UNITS[unit] - nbytes) <= half
    assert abs(Fraction(number)) < 1024


@given(st.integers(1, 2**60))
def test_the_opposite_of_a_number_is_its_text_with_a_minus(nbytes: int) -> None:
    assert format_bytes(-nbytes) == f"-{format_bytes(nbytes)}"
    assert format_bytes(nbytes, signed=True) == f"+{format_bytes(nbytes)}"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00K"),
        (9_408, "9.41K"),
        (25_557_032, "25.6M"),
        (350_000, "350K"),
        (999_499, "999K"),
        (999_500, "1.00M"),
        (8_030_261_248, "8.03B"),
        (405_853_388_800, "406B"),
        (1_500_000_000_000, "1.50T"),
        (12_345_000_000_000_000, "12345T"),
        (-25_557_032, "-25.6M"),
    ],
)
def test_counts_have_three_digits(count: int, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(1, 8, "12.5%"), (1, 3, "33.3%"), (2, 3, "66.7%"), (7, 7, "100.0%"), (0, 0, "-")],
)
def test_shares_have_one_decimal(part: int, whole: int, text: str) -> None:
    assert format_share(part, whole) == text


@pytest.mark.parametrize(
    ("dtype", "shape", "text"),
    [
        ("bfloat16", (8, 1024), "bf16[8, 1024]"),
        ("torch.float32", (), "f32[]"),
        ("bool", (3,), "bool[3]"),
        ("float8_e4m3fn", (2, 2), "float8_e4m3fn[2, 2]"),
    ],
)
def test_tensors_are_written_as_in_torch_fx(dtype: str, shape: tuple[int, ...], text: str) -> None:
    assert format_tensor(dtype, shape) == text


def test_a_long_text_loses_its_middle() -> None:
    assert shorten("LlamaRotaryEmbedding", 12) == "Llama…edding"
    assert shorten("Linear", 6) == "Linear"


@pytest.mark.parametrize(
    ("path", "width", "text"),
    [
        ("model.layers.31.mlp", 19, "model.layers.31.mlp"),
        ("model.layers.31.post_attention_layernorm", 27, "model.layers.31.post_…rnorm"),
        ("model.layers.31.self_attn.q_proj", 27, "model.….31.self_attn.q_proj"),
    ],
)
def test_a_long_path_keeps_the_numbers_that_tell_it_apart(path: str, width: int, text: str) -> None:
    assert shorten_dotted(path, width) == text


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (23, "models/llama/model.py:5"),
        (22, "…/llama/model.py:5"),
        (17, "model.py:5"),
        (8, "mod…py:5"),
    ],
)
def test_a_long_file_name_loses_its_folders_first(width: int, text: str) -> None:
    assert shorten_path("models/llama/model.py:5", width) == text


@given(st.text(alphabet="ab./", max_size=60), st.integers(0, 60))
def test_no_shortened_text_is_longer_than_asked_for(text: str, width: int) -> None:
    for function in (shorten, shorten_dotted, shorten_path):
        assert len(function(text, width)) <= width
        assert function(text, len(text)) == text
