"""Whole training steps of twenty models, each in a fresh process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.calibration.case import Step, amp, case, placed, tensors

BF16, FP16 = torch.bfloat16, torch.float16
Loss = Callable[[Any], Tensor]


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[], Tensor],
    dtype: torch.dtype | None = None,
) -> Step:
    """The step of the tutorials; its loss stays alive until the next one replaces it."""

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with amp(dtype):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    return step


def _images(
    name: str,
    build: Callable[[], nn.Module],
    batch: int,
    *,
    dtype: torch.dtype | None = None,
    last: bool = False,
    benchmark: bool = False,
    size: int = 224,
) -> None:
    """A classifier of images, SGD with momentum."""

    def make(device: str) -> Step:
        torch.backends.cudnn.benchmark = benchmark
        model = placed(build, device).train()
        if last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def loss() -> Tensor:
            with tensors(device):
                x, labels = torch.randn(batch, 3, size, size), torch.randint(1_000, (batch,))
            if last:
                x = x.to(memory_format=torch.channels_last)
            return functional.cross_entropy(model(x), labels)

        return _step(model, optimizer, loss, dtype)

    case(name, steps=3)(make)


def _texts(
    name: str,
    build: Callable[[], nn.Module],
    batch: int,
    length: int,
    *,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> None:
    """A model of transformers with labels, AdamW."""

    def make(device: str) -> Step:
        model: Any = placed(build, device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)

        def loss() -> Tensor:
            with tensors(device):
                ids = torch.randint(1_000, (batch, length))
            return model(input_ids=ids, labels=ids).loss  # type: ignore[no-any-return]

        return _step(model, optimizer, loss, dtype)

    case(name, steps=3)(make)


def _torchvision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import torchvision.models

        model: nn.Module = getattr(torchvision.models, name)()
        return model

    return build


def _timm(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm

        model: nn.Module = timm.create_model(name)
        return model

    return build


def _gpt2(**options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        return GPT2LMHeadModel(GPT2Config(**options))

    return build


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig())


def _llama(dtype: torch.dtype) -> Callable[[], nn.Module]:
    """About 0.3 B parameters, grouped queries."""

    def build() -> nn.Module:
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes: Any = {
            "vocab_size": 32_000,
            "hidden_size": 1_024,
            "intermediate_size": 4_096,
            "num_hidden_layers": 12,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
        }
        model: Any = LlamaForCausalLM(LlamaConfig(**sizes))
        return model.to(dtype)  # type: ignore[no-any-return]

    return build


def _t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    start: Any = {"decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(**start))


_texts("GPT-2, fp32", _gpt2(), 8, 512)
_texts("GPT-2, bf16 autocast", _gpt2(), 8, 512, dtype=BF16)
_texts("GPT-2, fp16 autocast", _gpt2(), 8, 512, dtype=FP16)
_texts("GPT-2, eager attention", _gpt2(attn_implementation="eager"), 4, 512)
_texts("GPT-2, fused AdamW", _gpt2(), 8, 512, fused=True)
_texts("BERT-base, bf16 autocast", _bert, 16, 128, dtype=BF16)
_texts("Llama, bf16", _llama(BF16), 4, 1_024)
_texts("Llama, bf16 autocast", _llama(torch.float32), 4, 1_024, dtype=BF16)
_texts("T5-small, fp32", _t5, 16, 128)
_images("ResNet-50, fp32", _torchvision("resnet50"), 32)
_images("ResNet-50, fp16 autocast", _torchvision("resnet50"), 32, dtype=FP16)
_images("ResNet-50, bf16 autocast, last", _torchvision("resnet50"), 32, dtype=BF16, last=True)
_images("ResNet-50, benchmark", _torchvision("resnet50"), 32, benchmark=True)
_images("VGG-16, fp32", _torchvision("vgg16"), 32)
_images("MobileNet V2, fp32", _torchvision("mobilenet_v2"), 32)
_images("ConvNeXt-Tiny, fp32", _torchvision("convnext_tiny"), 32)
_images("EfficientNet-B0, bf16 autocast", _torchvision("efficientnet_b0"), 32, dtype=BF16)
_images("ViT-Small, fp32", _timm("vit_small_patch16_224"), 64)
_images("Swin-Tiny, bf16 autocast", _timm("swin_tiny_patch4_window7_224"), 32, dtype=BF16)


class _Recurrent(nn.Module):
    """Ids [B, S] -> logits [B, S, 10,000], through two layers of LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10_000, 512)
        self.lstm = nn.LSTM(512, 512, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(512, 10_000)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of ids."""
        return self.head(self.lstm(self.embedding(ids))[0])  # type: ignore[no-any-return]


@case("LSTM language model", steps=3)
def _recurrent(device: str) -> Step:
    model = placed(_Recurrent, device).train()
    optimizer = torch.optim.Adam(model.parameters())

    def loss() -> Tensor:
        with tensors(device):
            ids = torch.randint(10_000, (32, 128))
        return functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())

    return _step(model, optimizer, loss)


@case("decoder, 423 M, bf16 autocast", steps=3)
def _decoder(device: str) -> Step:
    from models.decoder import decoder_423m
    from models.decoder_training import DecoderAdamW, cross_entropy

    model = placed(lambda: decoder_423m()[0], device)
    optimizer = DecoderAdamW(model.parameters())

    def loss() -> Tensor:
        with tensors(device):
            ids = torch.randint(10_000, (4, 128))
        return cross_entropy(model(ids), ids)

    return _step(model, optimizer, loss, BF16)
