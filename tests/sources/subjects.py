"""Loading subjects in tests, and the one-line form that every error has."""

from __future__ import annotations

import re
from typing import Any

import pytest

from graphmem.errors import GraphmemError
from graphmem.sources import InputRequest, LoadedSubject, load_subject


def load(text: object, **asked: Any) -> LoadedSubject:
    """Load a subject with a request of these fields."""
    return load_subject(str(text), InputRequest(**asked))


def refused(kind: type[GraphmemError], expected: str, text: object, **asked: Any) -> None:
    """Check that a subject is refused, in one line that contains ``expected``."""
    with pytest.raises(kind, match=re.escape(expected)) as caught:
        load(text, **asked)
    assert "\n" not in str(caught.value)
