"""Mixtures of experts, with every way that people write the routing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.trace.difficult.cases import Difficult

EXPERTS, CHOICES, WIDTH = 4, 2, 64


def _identity(router: nn.Linear) -> nn.Linear:
    """A router whose scores are the first features of a token."""
    nn.init.eye_(router.weight)
    return router


class _Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = _identity(nn.Linear(WIDTH, EXPERTS, bias=False))
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, chosen = self.router(x).softmax(-1).topk(CHOICES, dim=-1)
        return weights / weights.sum(-1, keepdim=True), chosen


class ByMask(_Experts):
    """A one-hot mask for each expert, and where it is set."""

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.route(x)
        mask = F.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for number in (mask.sum((-1, -2)) > 0).nonzero().flatten():
            choice, token = torch.where(mask[number])
            rows = self.experts[number](x[token]) * weights[token, choice, None]
            out.index_add_(0, token, rows)
        return out


class ByComparison(_Experts):
    """A comparison for each expert, and a check whether anything chose it."""

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.route(x)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = chosen == number
            if not mask.any():
                continue
            token, choice = mask.nonzero(as_tuple=True)
            out[token] += expert(x[token]) * weights[token, choice, None]
        return out


class BySorting(_Experts):
    """Tokens sorted by expert, and the counts as Python numbers."""

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.route(x)
        order = chosen.flatten().argsort()
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
        parts = x[order // CHOICES].split(counts)
        rows = torch.cat([e(part) for e, part in zip(self.experts, parts, strict=True)])
        back = torch.empty_like(rows).index_copy(0, order, rows)
        return (back.view(*chosen.shape, -1) * weights.unsqueeze(-1)).sum(1)


class ByCounting(_Experts):
    """Counts scattered into zeros and read through NumPy, as DeepSeek's inference does."""

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.route(x)
        counts = chosen.new_zeros((len(x), EXPERTS)).scatter_(1, chosen, 1).sum(0)
        order = chosen.view(-1).argsort()
        ordered, start, parts = x[order // CHOICES], 0, []
        for number, count in enumerate(counts.cpu().numpy()):
            if count == 0:
                continue
            parts.append(self.experts[number](ordered[start : start + count]))
            start += count
        rows = torch.cat(parts)
        back = torch.empty_like(rows).index_copy(0, order, rows)
        return (back.view(*chosen.shape, -1) * weights.unsqueeze(-1)).sum(1)


class Grouped(nn.Module):
    """One grouped product for all experts, in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.router = _identity(nn.Linear(WIDTH, EXPERTS, bias=False))
        self.weight = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(CHOICES, dim=-1)
        order = chosen.flatten().argsort()
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        ends = counts.cumsum(0).to(torch.int32)
        rows = F.grouped_mm(x[order // CHOICES], self.weight, offs=ends)
        back = torch.empty_like(rows).index_copy(0, order, rows)
        return (back.view(*chosen.shape, -1) * weights.unsqueeze(-1)).sum(1)


class Switch(_Experts):
    """One expert a token, each with a capacity, by einsum."""

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).softmax(-1)
        weight, chosen = scores.max(-1)
        one_hot = F.one_hot(chosen, EXPERTS)
        place = one_hot.cumsum(0) * one_hot
        kept = place.le(len(x) // EXPERTS) * one_hot
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token = kept[:, number].nonzero().squeeze(-1)
            out[token] = expert(x[token])
        return out * weight.unsqueeze(-1)


class ExpertChoice(_Experts):
    """Each expert chooses its tokens."""

    def forward(self, x: Tensor) -> Tensor:
        weights, token = self.router(x).softmax(-1).t().topk(len(x) // 2, dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = expert(x[token[number]]) * weights[number, :, None]
            out = out.index_add(0, token[number], rows)
        return out


def tokens(choices: int = CHOICES) -> Tensor:
    """Tokens that choose the experts as balanced routing does: for real it goes around too."""
    x = torch.zeros(128, WIDTH)
    for number, token in enumerate(x):
        for choice in range(choices):
            expert = (EXPERTS // 2 + number * choices + choice) % EXPERTS
            token[expert] = 2.0 * (choices - choice)
    return x


DIFFICULT = (
    Difficult("experts by mask", ByMask, tokens),
    Difficult("experts by comparison", ByComparison, tokens),
    Difficult("experts by sorting", BySorting, tokens),
    Difficult("experts by counting", ByCounting, tokens),
    Difficult("experts in one grouped product", Grouped, tokens),
    Difficult("one expert a token, with a capacity", Switch, lambda: tokens(choices=1)),
    Difficult("experts that choose", ExpertChoice, tokens),
)
