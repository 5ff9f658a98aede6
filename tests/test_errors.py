"""Errors as one line."""

from __future__ import annotations

import pytest

from graphmem.errors import one_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a is  wrong"), "a is wrong"),
        (ValueError("first\nsecond"), "first"),
        (ImportError("\n  It needs scipy.\nInstall it.\n"), "It needs scipy."),
        (MemoryError(), "MemoryError"),
        (ValueError(" \n "), "ValueError"),
    ],
)
def test_the_first_line_that_says_something_is_an_errors_line(
    error: BaseException, line: str
) -> None:
    assert one_line(error) == line
