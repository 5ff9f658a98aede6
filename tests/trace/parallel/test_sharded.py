"""FSDP2 per rank, beside torch's own ``fully_shard`` in a real run under a fake group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import graphmem
from graphmem.allocator import place
from graphmem.analysis import traced_call
from graphmem.errors import UsageError
from graphmem.measure.cpu import verify
from graphmem.measure.profile import profiled
from graphmem.measure.stream import peak_of
from graphmem.resolve import make_options
from graphmem.trace.inputs import as_call
from graphmem.trace.parallel.group import fake_ranks

from .models import BLOCK, ELEMENTS, LAYERS, WIDTH, WORDS, Transformer, tokens


def _by_hand(ranks: int) -> int:
    """The peak of two steps as a user writes them, by torch's profiler."""
    model, batch = Transformer(), tokens()
    with fake_ranks(ranks) as mesh:
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        kept: list[Any] = [None, None]

        def run() -> None:
            for _ in range(2):
                optimizer.zero_grad()
                kept[0] = model(batch)
                kept[1] = kept[0].mean()
                kept[1].backward()
                optimizer.step()

        shards: list[Any] = [p._local_tensor for p in model.parameters()]  # type: ignore[attr-defined]
        start = sum(shard.untyped_storage().nbytes() for shard in shards) + batch.nbytes
        peak, _ = peak_of(profiled(run).events, start)
    return peak


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_the_peak_of_a_rank_is_that_of_torchs_own_run(ranks: int) -> None:
    report = graphmem.analyze(Transformer(), tokens(), target="cpu", zero=3, ranks=ranks)

    assert report.peak.allocated_bytes == _by_hand(ranks)


@pytest.mark.parametrize(
    "options",
    [
        {"fsdp_units": "embedding,blocks.*"},
        {"fsdp_units": "blocks.0,blocks.2", "fsdp_reshard": False},
        {"fsdp_prefetch": 2},
        {"accumulate": 2, "clip_grad_norm": 1.0, "set_to_none": False},
        {"optimizer": "sgd+momentum", "foreach": False},
        {"mode": "inference"},
        {"mode": "inference", "grad": "inference_mode"},
    ],
    ids=str,
)
def test_every_way_to_run_it_is_exact(options: dict[str, Any]) -> None:
    checked = verify(Transformer(), tokens(), fsdp=True, ranks=4, **options)

    assert checked.difference_bytes == 0


def test_shared_and_frozen_parameters_are_exact() -> None:
    model = Transformer(tied=True)
    for parameter in model.blocks[0].parameters():
        parameter.requires_grad = False

    assert verify(model, tokens(), fsdp=True, ranks=4).difference_bytes == 0


def test_mixed_precision_differs_by_what_kernels_of_the_cpu_do() -> None:
    policy: dict[str, Any] = {"fsdp_param_dtype": "bfloat16", "fsdp_reduce_dtype": "float32"}
    checked = verify(Transformer(), tokens(), fsdp=True, ranks=4, **policy)

    # oneDNN's products take scratch, and layer norms keep their statistics in bfloat16: of 64
    # tokens, two norms in each of 3 blocks and the last, two statistics, 2 B less each.
    assert abs(checked.unexplained_bytes) <= 64 * 7 * 2 * 2


def test_parameters_and_states_are_divided_and_gathered_ones_are_temporaries() -> None:
    report = graphmem.analyze(Transformer(), tokens(), target="cpu", zero=3, ranks=4)

    # WIDTH and WORDS are multiples of 4, so every rank has a quarter, 4 B each; AdamW has two
    # states of that size and a step of 4 B for each of 3 * 12 + 4 parameters.
    assert report.breakdown["parameters"] == ELEMENTS // 4 * 4
    states = 2 * ELEMENTS // 4 * 4 + (LAYERS * 12 + 4) * 4
    assert report.breakdown["optimizer_states"] == states
    # At the least the root's are gathered in backward: embedding, norm and head.
    assert report.breakdown["temporaries"] >= (2 * WORDS * WIDTH + 2 * WIDTH) * 4


def test_rank_0_has_a_row_more_where_rows_are_not_divisible() -> None:
    model = nn.Linear(16, 10, bias=False)

    report = graphmem.analyze(model, torch.ones(1, 16), target="cpu", zero=3, ranks=4)

    # torch.chunk of 10 rows into 4 gives 3, 3, 3 and 1.
    assert report.breakdown["parameters"] == 3 * 16 * 4


def test_the_model_is_left_as_it_was() -> None:
    model = Transformer()
    before = {name: (id(p), p.clone()) for name, p in model.named_parameters()}

    for _ in range(2):
        graphmem.analyze(model, tokens(), zero=3, ranks=8)

    assert {type(m) for m in model.blocks} == {type(Transformer().blocks[0])}
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    for name, parameter in model.named_parameters():
        assert id(parameter) == before[name][0]
        assert torch.equal(parameter, before[name][1])
    assert not torch.distributed.is_initialized()


def test_the_run_names_the_ranks_and_the_units() -> None:
    report = graphmem.analyze(Transformer(), tokens(), zero=3, ranks=8)

    assert report.created_from["fsdp_units"] == "blocks.*"
    assert "zero 3, one of 8 ranks, fsdp units blocks.*" in str(report)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zero": 3, "ranks": 0}, "ranks must be 1 or more, not 0"),
        ({"zero": 4, "ranks": 2}, "zero: the stages are 0, 1, 2 and 3, not 4"),
        ({"zero": 3}, "zero 3: over how many GPUs"),
        ({"ranks": 2}, "ranks 2: how is the model spread"),
        ({"ddp": True, "fsdp": True, "ranks": 2}, "in one way"),
        ({"zero": 2, "fsdp": True, "ranks": 2}, "fsdp and zero 2"),
        ({"ddp": True, "ranks": 2, "fsdp_units": "blocks.*"}, "fsdp units: goes with fsdp"),
        ({"fsdp": True, "ranks": 2, "bucket_view": True}, "bucket view: goes with ddp or zero 1"),
        ({"fsdp": True, "ranks": 2, "fsdp_units": "block.*"}, "the nearest are blocks.*"),
        ({"fsdp": True, "ranks": 2, "fsdp_param_dtype": "bf16"}, "did you mean 'bfloat16'"),
        ({"zero": 1, "ranks": 2, "mode": "inference"}, "zero 1: an inference has no optimizer"),
        ({"zero": 3, "ranks": 2, "compile": True}, "torch.compile"),
        ({"zero": 3, "ranks": 2, "offload": "optimizer"}, "not simulated with offload"),
        ({"zero": 1, "ranks": 2, "optimizer": "lbfgs"}, "zero 1: LBFGS evaluates the model"),
        ({"zero": 2, "ranks": 2, "optimizer": "lbfgs"}, "zero 2: LBFGS evaluates the model"),
        (
            {"zero": 3, "ranks": 2, "precision": "bf16", "master_weights": True},
            "use precision fp32 and fsdp-param-dtype",
        ),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("*", r"\*")):
        graphmem.analyze(Transformer(), tokens(), **options)


def test_a_process_that_is_a_rank_already_is_told_so() -> None:
    with (
        fake_ranks(2),
        pytest.raises(UsageError, match=r"torch\.distributed is in use in this process"),
    ):
        graphmem.analyze(Transformer(), tokens(), zero=3, ranks=2)


def test_a_model_that_is_sharded_before_is_refused() -> None:
    model = Transformer()
    with fake_ranks(2) as mesh:
        fully_shard(model, mesh=mesh)
        with pytest.raises(UsageError, match="FSDPTransformer is sharded already"):
            graphmem.analyze(model, tokens())


def test_what_gathers_and_reduces_has_pools_of_its_own() -> None:
    options = make_options(zero=3, ranks=4)
    call = as_call(tokens(), None)
    _, schedule = traced_call(Transformer(), call, options)

    streams = {storage.stream for storage in schedule.storages}
    # The default, the one of what is gathered, which is copied there first, and the one of what
    # is reduced.
    assert len(streams) == 3
    gathered = [s for s in schedule.storages if s.nbytes == 4 * sum(BLOCK) and s.stream]
    assert len({storage.stream for storage in gathered}) == 1
    # Each block is gathered in the forwards and backwards of two steps.
    assert len(gathered) == LAYERS * 4
    on_one = replace(schedule, storages=tuple(replace(s, stream=0) for s in schedule.storages))
    apart, together = (
        max(place(one, lambda storage: not storage.host).reserved_bytes)
        for one in (schedule, on_one)
    )
    # Small requests of a stream take 2 MiB at least, large ones 20 MiB.
    assert apart >= together + 2 * (2 << 20)


def test_units_that_are_gathered_beforehand_are_there_together() -> None:
    run: dict[str, Any] = {"target": "cpu", "mode": "inference", "zero": 3, "ranks": 4}
    implicit, explicit = (
        graphmem.analyze(Transformer(), tokens(), **run, fsdp_prefetch=count) for count in (0, 1)
    )

    # The buffer of another block, which its copy-out has not emptied yet.
    added = explicit.peak.allocated_bytes - implicit.peak.allocated_bytes
    assert added == 4 * sum(BLOCK)
