"""The decoder: its size, that it learns, and that it keeps alive what the measured one did."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from graphmem.sources.importing import imported
from tests.models.recording import SNAPSHOTS, Event, recorded, snapshot

MODELS = Path(__file__).resolve().parents[2] / "models"
decoder = imported(str(MODELS / "decoder.py"))
training = imported(str(MODELS / "decoder_training.py"))

needs_snapshots = pytest.mark.skipif(not SNAPSHOTS.is_dir(), reason="no measured snapshots here")


def _vectors(events: list[Event]) -> list[Event]:
    """Without scalars: CUDA's ``where`` copies its -inf to the device, and meta's doesn't."""
    return [event for event in events if event[1] > 4]


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        ("decoder_423m", 423_183_360),
        ("small", 128_625_408),  # 2*10000*768 + 12*(4*768*768 + 3*768*3072 + 2*768) + 768
        ("large", 969_411_840),
        ("xl", 1_998_235_200),
        ("decoder_2_7b", 3_406_809_600),
    ],
)
def test_the_decoder_has_the_parameters_of_the_measured_one(size: str, parameters: int) -> None:
    with torch.device("meta"):
        model, (ids,) = getattr(decoder, size)()
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert ids.shape == (4, 128)
    assert not model.state_dict().keys() & {"blocks.0.attention.rotary.table"}


def test_softmax_and_loss_are_those_of_torch() -> None:
    x, targets = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    torch.testing.assert_close(decoder.softmax(x), x.softmax(-1))
    torch.testing.assert_close(decoder.silu(x), functional.silu(x))
    expected = functional.cross_entropy(x.flatten(0, 1), targets.flatten())
    torch.testing.assert_close(training.cross_entropy(x, targets), expected)


def test_attention_is_that_of_torch() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8).unbind()
    mask = torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(decoder.attend(q, k, v, mask), expected)


def test_rotary_turns_positions_by_their_angle() -> None:
    rotary = decoder.Rotary(context=4, head=2)
    turned = rotary(torch.tensor([1.0, 0.0]).expand(1, 1, 4, 2))[0, 0]
    expected = [[math.cos(i), math.sin(i)] for i in range(4)]
    torch.testing.assert_close(turned, torch.tensor(expected))


def test_no_token_sees_a_later_one() -> None:
    model, _ = decoder.tiny()
    ids = torch.randint(50, (1, 16))
    changed = ids.clone()
    changed[0, 10:] = (changed[0, 10:] + 1) % 50
    torch.testing.assert_close(model(ids)[:, :10], model(changed)[:, :10])


def test_a_tiny_decoder_learns() -> None:
    torch.manual_seed(0)
    model, _ = decoder.tiny()
    optimizer = training.DecoderAdamW(model.parameters(), lr=0.01)
    ids, targets = training.batches(50, 1, 2, 16)
    _, first = training.training_step(model, optimizer, ids[0], targets[0])
    for _ in range(30):
        optimizer.zero_grad()
        _, loss = training.training_step(model, optimizer, ids[0], targets[0])
    assert loss < first / 2


def test_the_loop_leaves_the_last_gradients() -> None:
    model, _ = decoder.tiny()
    optimizer = training.DecoderAdamW(model.parameters())
    warm_up, measured = training.batches(50, 5, 2, 16), training.batches(50, 1, 2, 16)
    output, loss = training.training_loop(
        model, optimizer, warm_up, measured, autocast=torch.bfloat16
    )
    assert output.dtype == torch.bfloat16
    assert loss.dim() == 0
    assert all(p.grad is not None for p in model.parameters())
    assert all(state["t"] == 7 for state in optimizer.state.values())


def test_the_optimizer_is_adamw() -> None:
    ours = torch.nn.Parameter(torch.randn(5))
    theirs = torch.nn.Parameter(ours.detach().clone())
    optimizers = [training.DecoderAdamW([ours]), torch.optim.AdamW([theirs], lr=1e-3)]
    for _ in range(3):
        grad = torch.randn(5)
        ours.grad, theirs.grad = grad, grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_the_optimizer_makes_its_default_state_every_time() -> None:
    parameter = torch.nn.Parameter(torch.empty(256, device="meta"))
    parameter.grad = torch.empty(256, device="meta")
    optimizer = training.DecoderAdamW([parameter])
    optimizer.step()
    with recorded() as events:
        optimizer.step()
    # one for the decay, two zeros_like, two and three for m and v and themselves, four
    # for the update: 1 + 2 + 3 + 4 + 4 of 1,024 B
    assert sum(1 for kind, nbytes in events if (kind, nbytes) == ("alloc", 1024)) == 14


@needs_snapshots
def test_a_forward_pass_allocates_and_frees_in_the_order_measured_on_cuda() -> None:
    with torch.device("meta"):
        model, _ = decoder.decoder_423m()
        ids = torch.zeros(4, 128, dtype=torch.int64)
    with torch.no_grad(), recorded() as events:
        model(ids)
    measured = [event for event, _ in snapshot("lm423m-ctx128-inference-fp32")]
    assert len(_vectors(measured)) == 2512
    assert _vectors(events) == _vectors(measured)


@needs_snapshots
def test_a_training_step_allocates_and_frees_in_the_order_measured_on_cuda() -> None:
    with torch.device("meta"):
        model, _ = decoder.decoder_423m()
        ids = torch.zeros(4, 128, dtype=torch.int64)
    optimizer = training.DecoderAdamW(model.parameters())
    measured = snapshot("lm423m-ctx128-train-fp32")
    in_backward = next(i for i, (_, file) in enumerate(measured) if "autograd" in file)
    in_optimizer = next(i for i, (_, file) in enumerate(measured) if file == "optimizer.py")
    with recorded() as events:
        training.training_step(model, optimizer, ids, ids)
        optimizer.zero_grad()
        events.clear()
        output = model(ids)
        loss = training.cross_entropy(output, ids)
        forward = list(events)
        loss.backward()
        events.clear()
        optimizer.step()
    assert _vectors(forward) == _vectors([event for event, _ in measured[:in_backward]])
    assert _vectors(events) == _vectors([event for event, _ in measured[in_optimizer:]])
