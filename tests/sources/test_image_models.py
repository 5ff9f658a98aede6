"""``timm:NAME`` and ``torchvision:NAME``: built on meta, with images of the right size."""

from __future__ import annotations

import sys

import pytest
import torch

from graphmem.errors import InputError, ModelLoadError
from graphmem.sources import InputSpec
from tests.sources.subjects import load, refused


def _on_meta(text: str) -> None:
    """Run a model forward on meta, with what was made for it."""
    subject = load(text, batch=2)
    images = [torch.empty(x.shape, device="meta") for x in subject.args]
    subject.model.to("meta").eval()(*images)


class TestTimm:
    @pytest.fixture(autouse=True)
    def _timm(self) -> None:
        pytest.importorskip("timm", reason="timm is not installed")

    @pytest.mark.parametrize(
        ("name", "size"),
        [("resnet18", 224), ("efficientnet_b1", 240), ("vit_tiny_patch16_384", 384)],
    )
    def test_images_have_the_size_of_the_models_configuration(self, name: str, size: int) -> None:
        subject = load(f"timm:{name}", batch=4)
        assert subject.kind == "timm"
        assert subject.args == (InputSpec((4, 3, size, size)),)
        assert not subject.real
        _on_meta(f"timm:{name}")

    def test_the_dtype_is_that_of_the_model_and_its_images(self) -> None:
        subject = load("timm:resnet18", dtype=torch.bfloat16)
        assert subject.args == (InputSpec((1, 3, 224, 224), torch.bfloat16),)
        assert {p.dtype for p in subject.model.parameters()} == {torch.bfloat16}

    def test_an_input_may_be_of_another_size(self) -> None:
        subject = load("timm:resnet18", inputs=("32x3x192x192",))
        assert subject.args == (InputSpec((32, 3, 192, 192)),)

    def test_a_misspelt_name_is_refused_with_the_nearest(self) -> None:
        refused(ModelLoadError, "has no such model; did you mean 'resnet18", "timm:resnte18")
        refused(ModelLoadError, "timm.list_models() lists them", "timm:@@@@")
        refused(ModelLoadError, "no such model", "timm:hf-hub:timm/resnet18.a1_in1k")

    def test_options_of_text_models_are_refused(self) -> None:
        refused(InputError, "--seq 8 is for hf: models", "timm:resnet18", seq=8)
        refused(InputError, "--task x is for hf: models", "timm:resnet18", task="x")


class TestTorchvision:
    @pytest.fixture(autouse=True)
    def _torchvision(self) -> None:
        pytest.importorskip("torchvision", reason="torchvision is not installed")

    @pytest.mark.parametrize(
        ("name", "shape"),
        [
            ("resnet18", (3, 224, 224)),
            ("inception_v3", (3, 299, 299)),
            ("efficientnet_b1", (3, 240, 240)),
            ("vit_h_14", (3, 224, 224)),
            ("r3d_18", (3, 16, 112, 112)),
            ("lraspp_mobilenet_v3_large", (3, 520, 520)),
        ],
    )
    def test_inputs_are_those_of_the_models_family(self, name: str, shape: tuple[int, ...]) -> None:
        subject = load(f"torchvision:{name}", batch=2)
        assert subject.kind == "torchvision"
        assert subject.args == (InputSpec((2, *shape)),)
        assert not subject.real
        _on_meta(f"torchvision:{name}")

    def test_optical_flow_takes_two_images(self) -> None:
        first, second = load("torchvision:raft_small").args
        assert first == second == InputSpec((1, 3, 520, 960))

    def test_detection_takes_lists_of_images_and_targets(self) -> None:
        subject = load("torchvision:maskrcnn_resnet50_fpn", batch=2, labels=True)
        images, targets = subject.args
        assert images == [InputSpec((3, 800, 800))] * 2
        assert targets[0]["boxes"].shape == (7, 4)
        assert (targets[0]["boxes"][:, 2:] > targets[0]["boxes"][:, :2]).all()
        assert targets[0]["masks"].shape == (7, 800, 800)
        assert len(load("torchvision:ssd300_vgg16").args) == 1  # no targets for inference

    def test_keypoints_lie_in_their_boxes(self) -> None:
        subject = load("torchvision:keypointrcnn_resnet50_fpn", labels=True)
        (target,) = subject.args[1]
        assert target["keypoints"].shape == (7, 17, 3)
        assert (target["keypoints"][..., :2] < target["boxes"][:, None, 2:]).all()

    def test_a_misspelt_name_is_refused_with_the_nearest(self) -> None:
        refused(ModelLoadError, "did you mean 'resnet18'?", "torchvision:resnte18")


@pytest.mark.parametrize(
    ("text", "package", "extra"),
    [
        ("timm:resnet18", "timm", "timm"),
        ("torchvision:resnet18", "torchvision.models", "vision"),
    ],
)
def test_a_missing_package_says_which_extra_installs_it(
    text: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    refused(ModelLoadError, f"pip install 'graphmem[{extra}]'", text)
