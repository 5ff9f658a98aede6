"""All node tests of the onnx package at once: none is forgotten, whoever owns its operator."""

from __future__ import annotations

from tests.sources.onnx.backend import cases, run_case
from tests.sources.onnx.not_passed import NOT_PASSED

LEAST_SHARE = 0.95


def test_every_case_passes_or_is_listed_with_its_reason() -> None:
    failed = {name: why for name, case in cases().items() if (why := run_case(case)) is not None}

    unlisted = {name: why for name, why in failed.items() if name not in NOT_PASSED}
    assert unlisted == {}
    assert len(failed) <= (1 - LEAST_SHARE) * len(cases())


def test_only_cases_that_there_are_stand_in_the_list() -> None:
    assert set(NOT_PASSED) <= set(cases())
