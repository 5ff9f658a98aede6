"""A pytest plugin, on as soon as graphmem is installed: a fixture and a marker.

.. code-block:: python

    @pytest.mark.memory_budget("4GiB", device="T4")
    def test_training_fits(assert_fits):
        assert_fits(Model(), graphmem.spec("8x3x224x224"), precision="amp-fp16")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from graphmem.errors import GraphmemError, one_line

if TYPE_CHECKING:
    from graphmem.report import Report

_MARKER = "memory_budget"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(budget=None, *, device=None, **options): what the models of assert_fits may "
        "take, and options of graphmem.analyze for them",
    )


@pytest.fixture
def assert_fits(request: pytest.FixtureRequest) -> Iterator[Callable[..., Report]]:
    """``graphmem.assert_fits``, with what the marker ``memory_budget`` says as its defaults.

    A test with the marker that never calls it fails: nothing was held to the budget.
    """
    from graphmem.testing import assert_fits as check

    marker = request.node.get_closest_marker(_MARKER)
    given = {} if marker is None else _given(marker)
    calls = 0

    def call(model: Any, inputs: Any = None, kwargs: Any = None, **own: Any) -> Report:
        nonlocal calls
        __tracebackhide__ = True
        calls += 1
        return check(model, inputs, kwargs, **{**given, **own})

    yield call
    if marker is not None and not calls:
        pytest.fail("memory_budget: the test never called assert_fits(model, inputs)", False)


def _given(marker: pytest.Mark) -> dict[str, Any]:
    if len(marker.args) > 1:
        raise pytest.UsageError("memory_budget takes one budget, such as memory_budget('4GiB')")
    budget = {"budget": marker.args[0]} if marker.args else {}
    return {**budget, **marker.kwargs}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marker on a test without the fixture would hold nothing to anything."""
    marker = item.get_closest_marker(_MARKER)
    if marker is not None and "assert_fits" not in getattr(item, "fixturenames", ()):
        pytest.fail("memory_budget: the test takes no fixture assert_fits to call", False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A mistake in what is analyzed is one line, not a traceback through graphmem."""
    error = call.excinfo.value if call.excinfo is not None else None
    outcome = yield
    if isinstance(error, GraphmemError) and "assert_fits" in getattr(item, "fixturenames", ()):
        outcome.get_result().longrepr = f"graphmem: {one_line(error)}"  # type: ignore[attr-defined]
