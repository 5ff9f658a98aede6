"""Generation: caches of keys and values that grow, that stand, and of encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.trace.difficult.cases import Loop

WIDTH, HEADS, VOCABULARY = 32, 4, 100


class Attention(nn.Module):
    """Attention of new tokens to all before; ``cache`` is what keeps keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: Tensor, cache: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    ) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        k, v = cache(k, v)
        y = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        result: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return result


class Growing:
    """A cache that is concatenated anew for each token."""

    def __init__(self) -> None:
        self.kept: tuple[Tensor, Tensor] | None = None

    def __call__(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.kept is not None:
            k, v = (torch.cat(pair, 2) for pair in zip(self.kept, (k, v), strict=True))
        self.kept = (k, v)
        return k, v


class Static:
    """A cache that is as large as it will be from the start."""

    def __init__(self, batch: int, length: int) -> None:
        shape = (batch, HEADS, length, WIDTH // HEADS)
        self.k, self.v = torch.zeros(shape), torch.zeros(shape)
        self.at = 0

    def __call__(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        end = self.at + k.shape[2]
        self.k[:, :, self.at : end] = k
        self.v[:, :, self.at : end] = v
        self.at = end
        return self.k, self.v


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.attention = Attention()
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor, cache: Any) -> Tensor:
        logits: Tensor = self.head(self.attention(self.embedding(ids), cache))
        return logits


@torch.no_grad()
def generate(model: Decoder, cache: Any, prompt: Tensor, tokens: int) -> Tensor:
    """Greedy decoding that stops where every sequence has ended."""
    ids = prompt
    for _ in range(tokens):
        chosen = model(ids, cache)[:, -1].argmax(-1, keepdim=True)
        if (chosen == 2).all():
            break
        ids = chosen
    return ids


def growing() -> Callable[[], Any]:
    model, prompt = Decoder(), torch.ones(2, 8, dtype=torch.int64)
    return lambda: generate(model, Growing(), prompt, 16)


def static() -> Callable[[], Any]:
    model, prompt = Decoder(), torch.ones(2, 8, dtype=torch.int64)
    return lambda: generate(model, Static(2, 24), prompt, 16)


def sampled() -> Callable[[], Any]:
    """Top-k sampling that looks for the end with item()."""
    model, prompt = Decoder(), torch.ones(1, 8, dtype=torch.int64)

    @torch.no_grad()
    def step() -> list[Any]:
        ids, cache = prompt, Growing()
        for _ in range(12):
            best, index = model(ids, cache)[:, -1].topk(5)
            ids = index.gather(-1, best.softmax(-1).multinomial(1))
            if (ids == 2).any():
                break
        return [ids]

    return step


class Translator(nn.Module):
    """An encoder whose keys and values are made once, for all steps of the decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(WIDTH, WIDTH)
        self.cross_kv = nn.Linear(WIDTH, 2 * WIDTH)
        self.decoder = Decoder()
        self.query = nn.Linear(VOCABULARY, WIDTH)

    @torch.no_grad()
    def translate(self, source: Tensor, tokens: int) -> Tensor:
        k, v = self.cross_kv(F.relu(self.encoder(source))).chunk(2, -1)
        ids, cache = torch.zeros(len(source), 1, dtype=torch.int64), Growing()
        for _ in range(tokens):
            q = self.query(self.decoder(ids, cache)[:, -1:])
            crossed = (q @ k.transpose(1, 2)).softmax(-1) @ v
            ids = crossed.argmax(-1)
        return ids


def encoder_decoder() -> Callable[[], Any]:
    model, source = Translator(), torch.randn(2, 50, WIDTH)
    return lambda: model.translate(source, 10)


def with_transformers() -> Callable[[], Any]:
    """``generate`` of transformers, with its own cache and criteria for stopping."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=64)
    model, prompt = GPT2LMHeadModel(config).eval(), torch.ones(2, 8, dtype=torch.int64)
    return lambda: model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)


LOOPS = (
    Loop("generation with a cache that grows", growing),
    Loop("generation with a cache that stands", static),
    Loop("generation by sampling", sampled),
    Loop("an encoder's cache for a decoder", encoder_decoder),
    Loop("generation by transformers", with_transformers),
)
