"""Techniques that save memory, on a GPU: numbers by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import graphmem
from graphmem.errors import UsageError
from graphmem.measure.cpu import verify
from graphmem.trace.checkpointing import checkpointed, checkpointed_modules
from graphmem.trace.chunked_loss import ChunkedLoss
from tests.trace import subjects
from tests.trace.techniques import gpt2, resnet

MIB = 2**20
X = torch.randn(128, 64)
CUBLAS = 8_519_680  # the workspace of a thread below SM 9.0


def after_forward(model: nn.Module, **options: Any) -> int:
    """What is allocated when the loss, the mean of the output, is taken."""
    report = graphmem.analyze(model, X, timeline=True, **{"optimizer": "sgd", **options})
    return next(p.allocated_bytes for p in report.timeline or () if p.op == "aten.mean")


# -- published cases


class Scores(nn.Module):
    """Attention as Megatron-LM spells it out, [batch x heads, S, D]."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        buffer = torch.empty(q.shape[0], q.shape[1], k.shape[1], dtype=q.dtype, device=q.device)
        scores = torch.baddbmm(buffer, q, k.transpose(1, 2), beta=0.0, alpha=0.1)
        weights = nn.functional.dropout(torch.softmax(scores, -1), 0.1)
        return torch.bmm(weights, v)


def test_scores_softmax_and_dropout_of_gpt_add_what_is_published() -> None:
    """Megatron-LM's issue 965: sequence 4,096, batch x heads 32, half precision."""
    q, k, v = (
        torch.empty(32, 4096, 128, dtype=torch.bfloat16, device="meta", requires_grad=True)
        for _ in range(3)
    )
    model = _WithParameter(Scores()).to(torch.bfloat16)
    report = graphmem.analyze(
        model, (q, k, v), optimizer="sgd", steps=1, timeline=True, loss=lambda o: o.float().mean()
    )
    assert report.timeline is not None
    at = {point.op: point.allocated_bytes for point in report.timeline[:6]}
    inputs = 3 * 32 * 4096 * 128 * 2  # and the parameter, 512
    half = 32 * 4096 * 4096 * 2  # 1,024 MiB
    # the buffer stands before baddbmm, whose first product also takes cuBLAS's workspace
    assert at["aten.baddbmm"] == inputs + 512 + 2 * half + CUBLAS  # 2,048 MiB
    assert at["aten._softmax"] == at["aten.baddbmm"] + half  # 1,024 MiB
    assert at["aten.native_dropout"] == at["aten._softmax"] + half + half // 2  # 1,536 MiB


class _WithParameter(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.scale = nn.Parameter(torch.zeros(1))

    def forward(self, *inputs: Tensor) -> Tensor:
        result: Tensor = self.inner(*inputs)
        return result


class HundredTimes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1024, 1024)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(100):
            x = self.layer(x)
        return x


def test_a_linear_layer_applied_a_hundred_times_holds_what_is_published() -> None:
    report = graphmem.analyze(
        HundredTimes(),
        graphmem.spec("10240x1024"),
        optimizer="sgd",
        steps=1,
        timeline=True,
        loss=lambda output: output.mean(),
    )
    assert report.timeline is not None
    last = [p for p in report.timeline if p.op == "aten.addmm"][-1]
    # weight 4 MiB and bias 4 KiB; the input and 100 results, 40 MiB each: 4,044 MiB
    tensors = 4 * MIB + 4096 + 101 * 40 * MIB
    assert tensors // MIB == 4044
    assert last.allocated_bytes == tensors + CUBLAS


# -- checkpoints


def test_checkpointed_blocks_keep_their_inputs_alone() -> None:
    model = nn.Sequential(*(subjects.mlp_block() for _ in range(4)))
    report = graphmem.analyze(model, X, optimizer="sgd", checkpoint="*")
    found = report.recomputation
    assert found is not None
    hidden = 128 * 256 * 4
    # of each block: gelu's input, and its result for the second layer, are made anew
    assert (found.remade_bytes, found.at_once_bytes) == (4 * 2 * hidden, 2 * hidden)
    # the input of each block is also the first layer's, which backward reads itself
    assert found.kept_bytes == 0
    assert found.saved_bytes == 3 * 2 * hidden
    assert found.modules == ("0", "1", "2", "3")
    assert found.count == 4


def test_recomputed_operations_are_those_of_a_real_run() -> None:
    small = gpt2()
    config: Any = small.model.config
    config.use_cache = False
    with FlopCounterMode(display=False) as plain:
        _real_step(small.model, small.inputs)
    options = graphmem.resolve.make_options(target="cpu", checkpoint=small.blocks)
    modules = checkpointed_modules(small.model, options)
    small.model.zero_grad()
    with checkpointed(modules, options), FlopCounterMode(display=False) as again:
        _real_step(small.model, small.inputs)
    report = graphmem.analyze(
        small.model, small.inputs, target="cpu", optimizer="sgd", checkpoint=small.blocks
    )
    found = report.recomputation
    assert found is not None
    assert found.flops == _total(again)
    assert found.recomputed_flops == _total(again) - _total(plain)


def _real_step(model: nn.Module, inputs: dict[str, Tensor]) -> None:
    model.train()
    model(**inputs).loss.backward()


def _total(counter: FlopCounterMode) -> int:
    return int(counter.get_total_flops())


def test_kept_operators_are_not_computed_again() -> None:
    small = gpt2()
    options: dict[str, Any] = {"optimizer": "sgd", "checkpoint": small.blocks}
    every = graphmem.analyze(small.model, small.inputs, **options).recomputation
    kept = graphmem.analyze(
        small.model, small.inputs, checkpoint_save=["aten.addmm"], **options
    ).recomputation
    assert every is not None
    assert kept is not None
    product = 2 * (2 * 2) * 16 * 16 * 16  # batch and heads; 16 tokens, 16 numbers a head
    attention = 2 * 2 * product  # two blocks: scores, and their product with the values
    assert kept.recomputed_flops == attention < every.recomputed_flops
    assert 0 < kept.remade_bytes < every.remade_bytes


def test_layers_of_one_operator_and_a_model_as_one_save_nothing_and_the_report_says_why() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    each = graphmem.analyze(model, X, checkpoint="*")
    whole = graphmem.analyze(model, X, checkpoint="(top level)")
    assert each.recomputation is not None
    assert each.recomputation.remade_bytes == 0
    assert "saves nothing: nothing is made anew" in _flat(str(each))
    assert whole.recomputation is not None
    assert whole.recomputation.at_once_bytes == whole.recomputation.remade_bytes > 0
    assert "saves nothing: the recomputation of (top level) holds at once all" in _flat(str(whole))


def _flat(text: str) -> str:
    return " ".join(text.split())


def test_a_reentrant_checkpoint_without_an_input_that_needs_a_gradient_is_told() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    report = graphmem.analyze(model, X, checkpoint="0", checkpoint_reentrant=True)
    (note,) = [item for item in report.unknown if "reentrant" in item.what]
    assert note.where == "0"
    assert {layer.module: layer.gradient_bytes for layer in report.layers}["0"] == 0


def test_a_cache_that_checkpoints_switch_off_is_told() -> None:
    small = gpt2()
    report = graphmem.analyze(small.model, small.inputs, checkpoint=small.blocks, steps=1)
    assert [item.assumed[:3] for item in report.unknown if "use_cache" in item.what] == ["off"]
    config: Any = small.model.config
    config.use_cache = False
    report = graphmem.analyze(small.model, small.inputs, checkpoint=small.blocks, steps=1)
    assert [item for item in report.unknown if "use_cache" in item.what] == []


def test_a_pattern_that_matches_modules_that_are_never_called_is_told() -> None:
    report = graphmem.analyze(_Unused(), X, checkpoint=["used", "spare"])
    (note,) = [item for item in report.unknown if "checkpoint" in item.what]
    assert note.where == "spare"


class _Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = subjects.mlp_block()
        self.spare = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.used(x)
        return result


# -- the host


def test_activations_that_are_saved_on_the_host_are_there_and_not_on_the_gpu() -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 32))
    options: dict[str, Any] = {"optimizer": "sgd", "offload": "activations"}
    report = graphmem.analyze(model, X, **options)
    assert report.host is not None
    # the input, gelu's input, its result and the second weight, as each is saved
    saved = 4 * (128 * 64 + 128 * 256 + 128 * 256 + 32 * 256)
    assert report.host.peak_bytes == saved
    assert report.host.pinned_bytes is None
    # when the forward ends neither gelu's input nor its result is on the GPU
    assert after_forward(model) - after_forward(model, **options) == 2 * 4 * 128 * 256


def test_pinned_blocks_are_powers_of_two() -> None:
    model = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32))
    report = graphmem.analyze(model, X, offload="activations", pin_memory=True, optimizer="sgd")
    assert report.host is not None
    hidden, weight = 4 * 128 * 96, 4 * 32 * 96  # 49,152 and 12,288
    assert report.host.peak_bytes == 4 * 128 * 64 + 2 * hidden + weight
    assert report.host.pinned_bytes == 32_768 + 2 * 65_536 + 16_384


def test_an_optimizer_on_the_host_leaves_parameters_and_gradients_on_the_gpu() -> None:
    model = nn.Sequential(nn.Linear(64, 256, bias=False), nn.Linear(256, 64, bias=False))
    report = graphmem.analyze(model, X, optimizer="adamw", offload="optimizer")
    weights = 2 * 4 * 64 * 256
    assert report.host is not None
    # copies of the parameters, gradients, two states, and AdamW's two step counters; its
    # temporaries are no part of what is offloaded
    assert report.host.peak_bytes == 4 * weights + 2 * 4
    assert report.breakdown["optimizer_states"] == 0
    assert report.peak.phase != "optimizer"


def test_an_optimizer_in_backward_holds_few_gradients() -> None:
    model = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(8)))
    options: dict[str, Any] = {"optimizer": "sgd", "loss": lambda output: output.mean()}
    plain = graphmem.analyze(model, torch.randn(4, 256), **options)
    report = graphmem.analyze(model, torch.randn(4, 256), optimizer_in_backward=True, **options)
    gradient = 4 * 256 * 256
    assert plain.breakdown["gradients"] == 8 * gradient
    assert report.breakdown["gradients"] == gradient


def test_gradients_filled_with_zeros_stay_with_an_optimizer_in_backward() -> None:
    model = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(8)))
    report = graphmem.analyze(
        model, torch.randn(4, 256), optimizer="sgd", optimizer_in_backward=True, set_to_none=False
    )
    assert report.breakdown["gradients"] == 8 * 4 * 256 * 256


# -- layouts and losses


def test_weights_and_images_lie_with_their_channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    made = graphmem.graph(model, torch.randn(2, 3, 8, 8), optimizer="sgd", channels_last=True)
    first = next(node for node in made.nodes if "convolution" in str(node.target))
    assert first.meta["tensor_meta"].stride == (8 * 6 * 6, 1, 8 * 6, 8)  # [2, 8, 6, 6]
    weight = model[0].weight
    assert isinstance(weight, Tensor)
    assert weight.is_contiguous()


def test_a_model_of_volumes_has_no_channels_last() -> None:
    model, inputs = nn.Conv3d(3, 4, 1), torch.randn(1, 3, 2, 2, 2)
    for run in (graphmem.analyze, verify):
        with pytest.raises(UsageError, match="channels last: weight has 5 dimensions"):
            run(model, inputs, channels_last=True)


def test_a_chunked_loss_takes_the_place_of_loss() -> None:
    small = gpt2()
    with pytest.raises(UsageError, match="it takes the place of loss"):
        graphmem.analyze(small.model, small.inputs, chunked_loss=2, loss=lambda output: output.loss)


def test_a_chunked_loss_is_the_same_loss() -> None:
    small = gpt2()
    model = small.model.eval()
    _, loss = ChunkedLoss(model, 3)((), small.inputs)
    torch.testing.assert_close(loss, model(**small.inputs).loss)


def test_a_chunked_loss_holds_one_chunk_of_logits() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_embd=32, n_head=2, vocab_size=50_000, n_positions=128
    )
    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(config)
    ids = torch.zeros(8, 128, dtype=torch.int64)
    inputs = {"input_ids": ids, "labels": ids.clone()}
    options: dict[str, Any] = {"optimizer": "sgd", "steps": 1}
    plain = graphmem.analyze(model, inputs, **options)
    chunked = graphmem.analyze(model, inputs, chunked_loss=8, **options)
    logits = 4 * 8 * 128 * 50_000
    # at most: log-probabilities and their gradient, and the logits that the outputs hold
    assert plain.peak.allocated_bytes > 3 * logits
    assert chunked.peak.allocated_bytes < plain.peak.allocated_bytes - 2 * logits


# -- left as it was, and refused


def test_the_model_is_left_as_it_was() -> None:
    small = gpt2()
    before = nn.Module.__call__
    graphmem.analyze(
        small.model, small.inputs, checkpoint=small.blocks, offload="activations", steps=1
    )
    graphmem.analyze(small.model, small.inputs, optimizer_in_backward=True, steps=1)
    assert nn.Module.__call__ is before
    config: Any = small.model.config
    assert config.use_cache is True
    for parameter in small.model.parameters():
        assert parameter.grad is None
        assert not parameter._post_accumulate_grad_hooks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "layer5.*"}, "no module's path matches 'layer5.*'; the nearest are layer"),
        ({"checkpoint": "layer*.*", "checkpoint_every": 9}, "4 modules match, fewer than 9"),
        ({"checkpoint_every": 2}, "checkpoint every: of which modules"),
        ({"checkpoint_reentrant": True}, "checkpoint reentrant: of which modules"),
        (
            {"checkpoint": "layer*.*", "checkpoint_save": "aten.convolutio"},
            "no operator 'aten.convolutio'; did you mean 'aten.convolution'",
        ),
        (
            {"checkpoint": "fc", "checkpoint_save": "aten.mm", "checkpoint_reentrant": True},
            "use_reentrant=False only",
        ),
        ({"offload": "gradients"}, "'gradients' is not one of activations, optimizer"),
        ({"pin_memory": True}, "pin memory: of what"),
        ({"chunked_loss": 4}, "ResNet is no causal language model of transformers"),
        ({"chunked_loss": 0}, "0 chunks are none"),
        ({"checkpoint": "fc", "mode": "inference"}, "an inference keeps nothing to save"),
        ({"checkpoint": "fc", "compile": True}, "torch.compile"),
        ({"optimizer_in_backward": True, "accumulate": 2}, "does not go with accumulate"),
        ({"optimizer_in_backward": True, "optimizer": "lbfgs"}, "LBFGS evaluates the model"),
        ({"optimizer_in_backward": True, "precision": "amp-fp16"}, "GradScaler"),
        ({"offload": "optimizer", "precision": "amp-fp16"}, "GradScaler"),
    ],
)
def test_what_cannot_be_run_is_refused(options: dict[str, Any], message: str) -> None:
    small = resnet()
    with pytest.raises(UsageError, match=message.replace("*", r"\*")):
        graphmem.analyze(small.model, small.inputs, **options)
