"""Rows that name a technique: their page, and the models of litgpt's and torchtune's recipes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from graphmem.trace.adapters.packing import Packing
from tools import truth_report
from tools.truth import litgpt, litgpt_packed, techniques, torchtune
from tools.truth.litgpt_model import Adapted, Decoder, FeedForward, Lora, Norm, Shape
from tools.truth.outcome import Outcome
from tools.truth.rows import TRUTH, read
from tools.truth.torchtune_model import Llama, Loss, loss_of
from tools.truth.torchtune_model import Shape as LlamaShape

needs_truth = pytest.mark.skipif(not TRUTH.is_dir(), reason="no measurements here")

SMALL = Shape(40, 2, 32, 4, 48, key_heads=2)


def of(predicted: float | None, family: str = "peft", **values: object) -> Outcome:
    given = {"name": "ia3--x", "metric": "m", "measured": 100.0, **values}
    return Outcome(family, predicted=predicted, **given)  # type: ignore[arg-type]


def test_a_technique_is_named_by_the_row() -> None:
    assert techniques.technique(of(1)) == "peft: ia3"
    assert techniques.technique(of(1, name="lora--rank32-lorafa")) == "peft: lora-fa"
    assert techniques.technique(of(1, "litgpt", group="nf4")) == "litgpt: LoRA, 4-bit weights"
    assert techniques.technique(of(1, "torchtune", group="packed data")) == "torchtune: packed data"


def test_an_error_above_five_percent_is_explained_or_said_not_to_be() -> None:
    assert techniques.why(of(104.0)) == techniques.why(of(96.0)) == techniques.why(of(None)) == ""
    assert techniques.why(of(94.0)) == techniques.NOT_EXPLAINED
    assert "AdamW's two states" in techniques.why(of(200.0, "litgpt", name="phi-3/full, 4 x 512"))


def test_the_table_by_technique_counts_what_is_predicted_and_near() -> None:
    rows = [of(104.0), of(98.0), of(80.0), of(None, skipped="why")]
    cells = techniques.by_technique(rows).splitlines()[-1].strip("|").split("|")
    assert [c.strip() for c in cells] == ["peft: ia3", "4", "3", "2", "4.00 %", "20.00 %"]


def test_a_page_has_each_row_its_reason_and_what_was_skipped() -> None:
    rows = [of(94.0), of(None, name="shira--x", skipped="looks at weights")]
    text = techniques.page({"peft": ((), rows), "liger": ((), [of(1.0, "liger", name="rope")])})
    assert "- **ia3--x** (-6.0 %): Not explained." in text
    assert "- shira--x: looks at weights." in text
    assert "rope" not in text
    assert "Not run for this page: litgpt;" in text


def test_the_report_writes_the_page_of_what_was_predicted_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth_report, "PAGE", tmp_path / "truth.md")
    (tmp_path / "a.json").write_text(truth_report.as_json([of(94.0)]), "utf-8")
    assert truth_report.main(["--read", str(tmp_path / "a.json"), "--page"]) == 0
    assert "ia3--x" in (tmp_path / "truth.md").read_text("utf-8")


@needs_truth
def test_every_row_of_litgpt_has_a_recipe_and_its_count_of_trained_parameters() -> None:
    for row in filter(litgpt.takes, read()):
        _, recipe = litgpt.recipe_of(row)
        assert recipe.batch == int(row.batch)
        assert (recipe.packing is not None) == ("nf4" in row.dtype)
        for count in re.findall(r"trainable=([\d,]+)", row.constructor):
            model = litgpt._model(recipe)
            trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
            assert trained == int(count.replace(",", ""))


@needs_truth
def test_every_row_of_torchtune_has_a_recipe_or_says_why_not() -> None:
    without = [row.model for row in read() if torchtune.takes(row)]
    assert {*without} - {*torchtune.RUNS} == {"Llama 3.2 3B full finetune +compile"}


@needs_truth
def test_lora_of_litgpt_is_predicted_within_two_thousandths() -> None:
    rows = [r for r in read() if litgpt.takes(r) and r.model.startswith("StableLM Alpha 3 B")]
    plain = [r for r in rows if r.dtype.endswith("None")]
    errors = [o.error for o in litgpt.outcomes(plain)]
    assert len(errors) == 2
    assert errors == pytest.approx([0, 0], abs=0.002)


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [
        (litgpt.LLAMA_2_7B, 6_738_415_616),
        (litgpt.LLAMA_3_8B, 8_030_261_248),
        (litgpt.TINY_LLAMA, 1_100_048_384),
        (litgpt.PHI_3, 3_821_079_552),
    ],
)
def test_models_of_litgpt_have_as_many_parameters_as_is_known(
    shape: Shape, parameters: int
) -> None:
    with torch.device("meta"):
        model = Decoder(shape, Lora())
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_models_of_torchtune_have_as_many_parameters_as_is_known() -> None:
    with torch.device("meta"):
        tied, lora = (Llama(torchtune.RUNS[name].shape) for name in (*torchtune.RUNS,)[::4])
    assert sum(p.numel() for p in tied.parameters()) == 3_212_749_824
    trained = sum(p.numel() for p in lora.parameters() if p.requires_grad)
    assert trained == 64 * 2 * (4096 + 4096) * 32  # rank, q and v, A and B, layers
    assert sum(p.numel() for p in lora.parameters()) - trained == 6_738_415_616


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("key_heads", [2, 4])
def test_only_adapters_are_trained_and_without_them_nothing_changes(
    key_heads: int, copies: bool
) -> None:
    torch.manual_seed(0)
    shape = dataclasses.replace(SMALL, key_heads=key_heads)
    model = Decoder(shape, Lora(2, 0.0, copies=copies))
    plain = Decoder(shape, Lora())
    plain.load_state_dict(model.state_dict(), strict=False)
    for name, parameter in model.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.zeros_(parameter)
        elif name.endswith("lora_a"):
            torch.nn.init.ones_(parameter)
    ids = torch.randint(40, (3, 6))
    logits = model(ids, *model.tables(6))
    torch.testing.assert_close(logits, plain(ids, *plain.tables(6)))
    logits.sum().backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if "lora_" in name}


def test_chunks_have_the_loss_of_the_whole() -> None:
    torch.manual_seed(0)
    model, ids = Decoder(SMALL, Lora()), torch.randint(40, (2, 300))
    wanted = F.cross_entropy(
        model(ids, *model.tables(300))[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
    )
    for is_lora in (False, True):
        _, loss = litgpt._loss(model, ids, model.tables(300), is_lora)
        torch.testing.assert_close(loss, wanted)


@pytest.mark.parametrize("norm", [Norm.RMS_HALF, Norm.RMS_CAST, Norm.RMS_WHOLE])
def test_all_of_rms_norm_compute_the_same(norm: Norm) -> None:
    torch.manual_seed(0)
    shape = SMALL.at(norm)
    model = Decoder(shape, Lora())
    x = torch.randn(2, 5, 32)
    torch.testing.assert_close(model.ln_f(x), F.rms_norm(x, (32,), eps=1e-5))


def test_layers_of_four_bits_keep_their_input_as_bitsandbytes_did() -> None:
    with torch.device("meta"):
        layer = Adapted(64, 32, False, Lora(), 0)
        litgpt_packed.pack(layer, is_nested=True)
        x = torch.empty(2, 64, requires_grad=True)
        made = layer(x)
    assert isinstance(layer.linear, litgpt_packed.KeepingInput)
    assert made.shape == (2, 32)
    assert made.grad_fn.kept is x
    assert layer.linear.weight.numel() == 64 * 32 // 2


def test_a_gemma_has_its_own_feed_forward_and_offset() -> None:
    shape = dataclasses.replace(SMALL, feed_forward=FeedForward.GELU, is_gemma=True, is_gemma2=True)
    model = Decoder(shape, Lora())
    assert model(torch.zeros(1, 4, dtype=torch.int64), *model.tables(4)).shape == (1, 4, 40)
    x = torch.randn(1, 3, 32)
    torch.testing.assert_close(model.ln_f(x), 2 * F.rms_norm(x, (32,), eps=1e-5))


def test_groups_of_litgpt_are_by_packing() -> None:
    recipe = litgpt.Recipe(SMALL, 1, lora=Lora(8), packing=Packing.NF4_DOUBLE)
    assert recipe.technique == "LoRA, 4-bit weights and tables"
    assert litgpt.Recipe(SMALL, 1).technique == "full fine-tuning"


@pytest.mark.parametrize("loss", [Loss.WHOLE, Loss.SHIFTED])
def test_a_llama_of_torchtune_gives_a_loss_that_can_be_trained(loss: Loss) -> None:
    torch.manual_seed(0)
    model = Llama(LlamaShape(40, 2, 32, 4, 2, 48, is_tied=True, loss=loss))
    tokens = torch.randint(40, (2, 16))
    loss_of(model(tokens, tokens)).backward()
    assert all(p.grad is not None for p in model.parameters())
