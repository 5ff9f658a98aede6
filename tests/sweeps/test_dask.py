"""A sweep on a Dask cluster."""

from __future__ import annotations

import pytest

from graphmem.sweeps import cases, sweep

distributed = pytest.importorskip("distributed")
FACTORIES = "tests/sweeps/factories.py"


@pytest.mark.filterwarnings("default")
def test_a_cluster_gives_the_answers_of_this_machine() -> None:
    made = cases(f"{FACTORIES}:plain", batch=range(1, 20), device=["L4", None])
    here = {o.case: o.answer for o in sweep(made, jobs=1, cache=None)}
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = {o.case: o.answer for o in sweep(made, client.get_executor(), cache=None)}
    assert there == here


@pytest.mark.filterwarnings("default")
def test_a_worker_that_ends_does_not_stop_the_others() -> None:
    made = cases(f"{FACTORIES}:killer", batch=range(1, 6))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        outcomes = list(sweep(made, client.get_executor(retries=0), cache=None))
    failed = {o.case.batch for o in outcomes if o.answer is None}
    assert failed == {3}
