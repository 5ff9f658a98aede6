"""Tests of graphmem.options: choices, the nearest of them, and the options as JSON."""

from __future__ import annotations

import inspect
import json
from dataclasses import FrozenInstanceError, fields, replace
from enum import StrEnum

import pytest

import graphmem
from graphmem.errors import UsageError
from graphmem.options import (
    DEFAULTS,
    Mode,
    Options,
    Precision,
    Target,
    choice,
    nearest,
    parse_bytes,
)


@pytest.mark.parametrize("member", [*Mode, *Precision, *Target])
def test_every_member_is_chosen_by_its_value(member: Mode | Precision | Target) -> None:
    assert choice(type(member), member.value, "--option") is member


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (
            Mode,
            "trainning",
            "--mode: 'trainning' is not one of inference, training; did you mean 'training'?",
        ),
        (Target, "tpu", "--mode: 'tpu' is not one of cuda, cpu, onnxruntime; did you mean 'cpu'?"),
        (
            Precision,
            "amp_bf16",
            "--mode: 'amp_bf16' is not one of fp32, bf16, fp16, amp-bf16, amp-fp16; "
            "did you mean 'amp-bf16'?",
        ),
        (Mode, "", "--mode: '' is not one of inference, training"),
        (Target, "xyz", "--mode: 'xyz' is not one of cuda, cpu, onnxruntime"),
    ],
)
def test_a_choice_that_there_is_not_is_refused_with_what_there_is(
    kind: type[Mode] | type[Precision] | type[Target], value: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        choice(kind, value, "--mode")
    assert str(caught.value) == message
    assert caught.value.__suppress_context__  # one line, no ValueError above it


@pytest.mark.parametrize(
    ("value", "end"),
    [
        ("adamww", "; did you mean 'adamw'?"),
        ("sgd", "; did you mean 'sgd'?"),
        ("sg", "; did you mean 'sgd'?"),
        ("lion", ""),
        ("", ""),
    ],
)
def test_only_a_name_that_is_near_is_proposed(value: str, end: str) -> None:
    assert nearest(value, ["adam", "adamw", "sgd"]) == end


def test_the_nearest_of_several_near_names_is_proposed() -> None:
    # Of 5 and 7 letters 5 in common: 2*5 / 12 = 0.83; of 5 and 5 letters 4: 2*4 / 10 = 0.8.
    assert nearest("adamw", ["adamx", "adamw_8"]) == "; did you mean 'adamw_8'?"


def test_half_of_a_name_is_near_enough() -> None:
    assert nearest("abcd", ["abyz"]) == "; did you mean 'abyz'?"  # 2*2 / (4+4) = 0.5
    assert nearest("abcd", ["abxyz"]) == ""  # 2*2 / (4+5) = 0.44


def test_names_may_come_from_an_iterator() -> None:
    assert nearest("sdg", iter(("adam", "sgd"))) == "; did you mean 'sgd'?"


def test_options_are_changed_by_replacing_them_only() -> None:
    options = Options()
    with pytest.raises(FrozenInstanceError):
        options.steps = 3  # type: ignore[misc]
    assert replace(options, steps=3) != options == Options()


def test_options_are_json_values_under_their_own_names() -> None:
    options = Options(mode=Mode.INFERENCE, target=Target.CPU, precision=Precision.AMP_BF16)

    values = json.loads(json.dumps(options.to_dict()))

    assert values == options.to_dict()
    assert list(values) == [each.name for each in fields(Options)]
    assert values["mode"] == "inference"
    assert values["target"] == "cpu"
    assert values["precision"] == "amp-bf16"


def test_by_default_two_training_steps_run_on_cuda_as_pytorch_itself_would_run_them() -> None:
    options = Options()
    assert (options.mode, options.target, options.steps) == (Mode.TRAINING, Target.CUDA, 2)
    assert (options.optimizer, options.accumulate, options.set_to_none) == ("adamw", 1, True)
    left_open = ("precision", "foreach", "fused", "clip_grad_norm")
    assert [getattr(options, name) for name in left_open] == [None] * 4
    assert options.grad == "no_grad"
    assert not options.strict


@pytest.mark.parametrize(
    ("value", "kind", "name"),
    [("BF16", Precision, "bf16"), ("CUDA", Target, "cuda"), ("AMP-BF16", Precision, "amp-bf16")],
)
def test_a_name_in_capitals_is_near(value: str, kind: type[StrEnum], name: str) -> None:
    assert nearest(value, [str(member) for member in kind]) == f"; did you mean {name!r}?"


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [
        (0, 0),
        (1536, 1536),
        ("1536", 1536),
        ("1 B", 1),
        ("2GiB", 2 * 1024**3),
        (" 2 gib ", 2 * 1024**3),
        ("1.5GiB", 3 * 1024**3 // 2),
        ("500MB", 500_000_000),
        ("0.25 KiB", 256),
        ("1.000000000001TB", 1_000_000_000_001),
    ],
)
def test_a_size_is_a_number_with_a_unit_or_bytes(size: int | str, nbytes: int) -> None:
    assert parse_bytes(size, "headroom") == nbytes


@pytest.mark.parametrize("size", ["", "GiB", "-1", -1, "2G", "1.5", "1.5B", "two GiB", "1e9", 1.5])
def test_what_is_no_size_is_refused_with_an_example(size: int | str) -> None:
    with pytest.raises(UsageError, match=r"headroom: .* is not a size such as 2GiB, 500MB or 10"):
        parse_bytes(size, "headroom")


def test_every_option_is_an_argument_of_analyze() -> None:
    assert inspect.signature(graphmem.analyze).parameters.keys() >= DEFAULTS.keys()
