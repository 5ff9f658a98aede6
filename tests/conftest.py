"""What every test stands on: a terminal of 80 columns, and the measured truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

TRUTH = Path(__file__).resolve().parents[2] / "shared" / "truth"

# No deadline: a first example may import half of torch.
hypothesis.settings.register_profile("graphmem", deadline=None)
hypothesis.settings.load_profile("graphmem")


@pytest.fixture(scope="session", autouse=True)
def _eighty_columns() -> Iterator[None]:
    """Tables and help texts come out the same in every terminal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        yield


@pytest.fixture(scope="session")
def truth() -> Path:
    """The folder of what was measured on real GPUs; the test skips where it is absent."""
    if not TRUTH.is_dir():
        pytest.skip("the measured truth (shared/truth beside the repository) is not here")
    return TRUTH
