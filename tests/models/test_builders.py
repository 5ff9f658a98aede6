"""Every factory in ``models/``: it builds on meta, and runs with the inputs it gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphmem.sources import InputRequest, InputSpec, LoadedSubject, load_subject
from graphmem.sources.importing import functions_of

MODELS = Path(__file__).resolve().parents[2] / "models"
NEEDS = {"gpt2": "transformers", "bert": "transformers", "vit": "timm", "resnet": "torchvision"}

FACTORIES = [
    "decoder.py:tiny",
    "decoder.py:medium",
    "mlp.py:residual_mlp",
    "mlp.py:plain_mlp",
    "tied_lm.py:tied_lm",
    "lstm.py:lstm",
    "gpt2.py:gpt2_4_layers",
    "gpt2.py:gpt2_small",
    "bert.py:bert_2_layers",
    "vit.py:vit_small",
    "resnet.py:resnet18",
    "resnet.py:resnet50",
    "resnet.py:resnet50_fine",
    "resnet.py:resnet1001",
    "causes.py:scores",
    "causes.py:fused_scores",
    "causes.py:logits",
    "causes.py:activations",
    "causes.py:states",
    "causes.py:keeps_its_losses",
    "causes.py:averaged",
    "causes.py:convolutions",
    "causes.py:uneven",
    "convnet.py:convnet",
    "convnet.py:channels_last",
    "checkpointed.py:kept",
    "checkpointed.py:reentrant",
    "checkpointed.py:not_reentrant",
]
LARGE = (
    *("decoder.py:medium", "gpt2.py:gpt2_small", "resnet.py:resnet50"),
    *("resnet.py:resnet50_fine", "resnet.py:resnet1001", "causes.py:uneven"),
)
SMALL = [f for f in FACTORIES if f not in LARGE]


def _load(factory: str, batch: int | None = None) -> LoadedSubject:
    package = NEEDS.get(factory.partition(".")[0])
    if package is not None:
        pytest.importorskip(package, reason=f"{package} is not installed")
    return load_subject(f"{MODELS}/{factory}", InputRequest(batch=batch))


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_factory_builds_on_meta_and_takes_a_batch(factory: str) -> None:
    subject = _load(factory, batch=3)
    assert not subject.real
    assert all(p.is_meta for p in subject.model.parameters())
    inputs = (*subject.args, *subject.kwargs.values())
    assert inputs
    assert all(x.shape[0] == 3 for x in inputs)


@pytest.mark.parametrize("factory", SMALL)
def test_a_factory_runs_forward_and_backward_for_real(factory: str) -> None:
    subject = _load(factory, batch=2)
    assert subject.rebuild_really is not None
    really = subject.rebuild_really()
    args = [x.example() if isinstance(x, InputSpec) else x for x in really.args]
    kwargs = {k: x.example() if isinstance(x, InputSpec) else x for k, x in really.kwargs.items()}
    output = really.model(*args, **kwargs)
    loss = output if isinstance(output, torch.Tensor) else output.loss
    loss.mean().backward()
    assert all(p.grad is not None for p in really.model.parameters())


def test_every_public_factory_of_the_small_files_is_tested() -> None:
    tested = {factory.partition(":")[0] for factory in FACTORIES}
    files = {path.name for path in MODELS.glob("*.py")}
    assert files - tested == {"decoder_training.py"}
    for file in tested - {"decoder.py"}:
        names = {f"{file}:{name}" for name in functions_of(MODELS / file) if name[0].islower()}
        assert names <= set(FACTORIES)


@pytest.mark.parametrize(
    ("config", "parameters"), [("llama3_8b", 8_030_261_248), ("gpt2", 124_439_808)]
)
def test_a_configuration_describes_the_published_model(config: str, parameters: int) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    subject = load_subject(f"hf:{MODELS}/{config}.json", InputRequest(seq=128))
    assert sum(p.numel() for p in subject.model.parameters()) == parameters
    expected = torch.bfloat16 if config == "llama3_8b" else torch.float32
    assert {p.dtype for p in subject.model.parameters()} == {expected}
