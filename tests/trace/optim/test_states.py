"""The states of other packages' optimizers, by hand and beside the packages themselves."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

import graphmem
from graphmem.errors import UsageError
from graphmem.trace.optim import ALIASES, MODELS
from graphmem.trace.optimizers import find_optimizer


def _model() -> nn.Module:
    """A table of 40 x 128 = 5,120 elements, a matrix of 16,384 and a bias of 128."""
    return nn.Sequential(nn.Embedding(40, 128), nn.Linear(128, 128))


TABLE, MATRIX, BIAS = 5120, 16_384, 128
ALL = TABLE + MATRIX + BIAS
MAPS = 2 * 256 * 4
"""The two tables of 256 levels that a whole optimizer has."""


def _states(optimizer: Any, model: nn.Module | None = None, **options: Any) -> int:
    inputs = graphmem.spec("2x8:int64")
    options = {"target": "cpu", **options}
    report = graphmem.analyze(model or _model(), inputs, optimizer=optimizer, **options)
    return report.breakdown["optimizer_states"]


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("lion", 4 * ALL),
        # the momentum; no name of an nn.Sequential is known: a value for each parameter, but
        # the bias has a second state as large as itself
        ("adam_mini", 4 * (ALL + 1 + 1 + BIAS)),
        # table and bias: two states and a step; matrix: momentum
        ("muon+adamw", 4 * (2 * (TABLE + BIAS) + 2 + MATRIX)),
        # two bytes an element, tables of 5120 / 256 = 20 and 64 maxima; the bias in fp32
        ("adamw8bit", 2 * (TABLE + MATRIX + 4 * (20 + 64)) + 2 * 4 * BIAS + MAPS),
        # 5120 / 2048 = 2.5, so 3, and 8 maxima
        ("adamw8bit(block_size=2048)", 2 * (TABLE + MATRIX + 4 * (3 + 8)) + 8 * BIAS + MAPS),
        ("adamw8bit(min_8bit_size=10000)", 8 * (TABLE + BIAS) + 2 * (MATRIX + 4 * 64) + MAPS),
        ("adamw_bnb_8bit", 8 * (TABLE + BIAS) + 2 * (MATRIX + 4 * 64) + MAPS),
        ("lion8bit", TABLE + MATRIX + 4 * (20 + 64) + 4 * BIAS + MAPS // 2),
        ("paged_adamw", 8 * ALL),  # none has 100,000 elements
        # the first state twice, in bytes and in maxima
        ("ademamix8bit", 3 * (TABLE + MATRIX + 4 * (20 + 64)) + 12 * BIAS + MAPS),
        # as bitsandbytes', with a table of levels for each state of each parameter
        ("ao_adamw8bit", 2 * (TABLE + MATRIX + 4 * (20 + 64) + 2 * 1024) + 8 * BIAS),
        # half a byte, blocks of 128, tables of 16 levels
        ("ao_adamw4bit", 2 * ((TABLE + MATRIX) // 2 + 4 * (40 + 128) + 2 * 64) + 8 * BIAS),
        ("ao_adamwfp8", 2 * (TABLE + MATRIX + 4 * (20 + 64)) + 8 * BIAS),
    ],
)
def test_the_states_by_hand(name: str, nbytes: int) -> None:
    assert _states(name) == nbytes


def test_the_rows_of_matrices_with_a_known_name_share_a_second_value() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(40, 128), "mlp": nn.Linear(128, 64, bias=False)})
    model.forward = lambda ids: model["mlp"](model["embed"](ids))
    # momentum, and one value for each of 40 and 64 rows
    assert _states("adam_mini", model) == 4 * (TABLE + 128 * 64 + 40 + 64)


def test_states_of_32_bits_are_so_for_parameters_of_16() -> None:
    assert _states("paged_adamw", precision="bf16") == 8 * ALL
    assert _states("lion", precision="bf16") == 2 * ALL


def test_paged_states_lie_beside_the_allocator_and_are_told() -> None:
    model = nn.Sequential(nn.Linear(400, 300), nn.Linear(300, 4))  # 120,000 and 1,200 elements
    report = graphmem.analyze(model, graphmem.spec("2x400"), optimizer="paged_adamw")
    (paged,) = [item for item in report.unknown if "paged" in item.what]
    assert paged.bytes == 8 * 120_000
    # the biases of 300 and 4, and the small matrix; in blocks of 512 B
    sizes = [4 * 300, 4 * 1200, 4 * 4]
    blocks = sum(2 * -(-size // 512) * 512 for size in sizes)
    assert sum(layer.optimizer_bytes for layer in report.layers) == blocks


@pytest.mark.parametrize(
    ("name", "copies"),
    # Adam's for-loop has three temporaries; a fused kernel none; Lion's blend has two
    [("lion", 2), ("adamw8bit", 0), ("ao_adamw8bit", 0)],
)
def test_the_temporaries_of_a_step(name: str, copies: int) -> None:
    model = nn.Linear(128, 128, bias=False)
    report = graphmem.analyze(model, graphmem.spec("2x128"), optimizer=name, target="cpu")
    states = sum(layer.optimizer_bytes for layer in report.layers)
    # parameters and gradients, states, input and output of 2 x 128, and the loss
    resting = 2 * 4 * MATRIX + states + 2 * 4 * 2 * 128 + 4
    assert report.steps[1].phases["optimizer"] == resting + copies * 4 * MATRIX


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("adam8bits", "did you mean 'adam8bit'?"),
        ("adamw8bt", "did you mean 'adamw8bit'?"),
        ("sgd(momentum=)", "is not a name or a call such as sgd(momentum=0.9)"),
        ("sgd(0.9)", "is not a name or a call"),
    ],
)
def test_a_mistake_has_the_nearest_name(name: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_optimizer(name)
    assert error in str(raised.value)


def test_an_argument_that_an_optimizer_has_not_is_one_line() -> None:
    with pytest.raises(UsageError, match="optimizer Blockwise: TypeError"):
        _states("adamw8bit(blocksize=3)")


@pytest.mark.parametrize("alias", ALIASES)
def test_every_alias_names_an_optimizer(alias: str) -> None:
    assert callable(find_optimizer(alias)[0])


@pytest.mark.parametrize("name", [name for name in MODELS if "adafactor" not in name])
def test_every_model_trains_in_half_precision(name: str) -> None:
    assert _states(name, precision="bf16") > 0


# -- beside the packages


def _of_package(cls: Any, **arguments: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _states(lambda parameters: cls(parameters, **arguments))


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("adamw8bit", "AdamW8bit"),
        ("adam8bit", "Adam8bit"),
        ("lion8bit", "Lion8bit"),
        ("rmsprop8bit", "RMSprop8bit"),
        ("ademamix8bit", "AdEMAMix8bit"),
        ("ademamix", "AdEMAMix"),
        ("lion_32bit", "Lion32bit"),
    ],
)
def test_bitsandbytes_has_the_same_states(name: str, cls: str) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    assert _states(name) == _of_package(getattr(bitsandbytes.optim, cls))


def test_embeddings_of_32_bits_are_those_that_bitsandbytes_overrides() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    model = _model()
    table = next(model.children())
    manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
    manager.register_module_override(table, "weight", {"optim_bits": 32})
    try:
        theirs = _states(bitsandbytes.optim.AdamW8bit, model)
    finally:
        manager.initialize()
    assert _states("adamw_bnb_8bit") == theirs


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("ao_adamw8bit", "AdamW8bit"),
        ("ao_adamw4bit", "AdamW4bit"),
        ("ao_adamwfp8", "AdamWFp8"),
    ],
)
def test_torchao_has_the_same_states(name: str, cls: str) -> None:
    optim = pytest.importorskip("torchao.optim")
    # and a step of 4 B for each of three parameters, on the host where that is not the target
    assert _states(name) + 3 * 4 == _of_package(getattr(optim, cls))


def test_lion_pytorch_has_the_same_peak_in_every_phase() -> None:
    lion = pytest.importorskip("lion_pytorch").Lion
    ours, theirs = (
        graphmem.analyze(_model(), graphmem.spec("2x8:int64"), optimizer=choice).steps
        for choice in ("lion", lion)
    )
    assert ours == theirs


def test_adam_mini_has_the_same_states() -> None:
    package = pytest.importorskip("adam_mini").Adam_mini
    model = nn.ModuleDict(
        {
            "embed": nn.Embedding(40, 128),
            "q_proj": nn.Linear(128, 128),
            "mlp": nn.Linear(128, 64, bias=False),
            "norm": nn.LayerNorm(64),
        }
    )
    model.forward = lambda ids: model["norm"](model["mlp"](model["q_proj"](model["embed"](ids))))
    object.__setattr__(model, "config", SimpleNamespace(hidden_size=128, num_attention_heads=4))

    def made(_: Any) -> Any:
        named = model.named_parameters()
        return package(named, dim=128, n_heads=4, verbose=False)

    assert _states("adam_mini", model) == _states(made, model)


def test_a_class_of_torchao_is_taken_as_compiled() -> None:
    optim = pytest.importorskip("torchao.optim")
    ours, theirs = (
        graphmem.analyze(_model(), graphmem.spec("2x8:int64"), optimizer=choice).steps
        for choice in ("ao_adamw4bit", optim.AdamW4bit)
    )
    assert ours == theirs


def test_what_a_compiled_step_takes_is_told_as_unknown() -> None:
    report = graphmem.analyze(_model(), graphmem.spec("2x8:int64"), optimizer="ao_adamw8bit")
    assert [item.where for item in report.unknown if "compiled step" in item.what] == [
        "torchao's single_param_adam"
    ]


def test_muon_alone_says_who_takes_the_others() -> None:
    with pytest.raises(UsageError, match="gives all others to AdamW"):
        _states("muon")
