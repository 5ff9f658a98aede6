"""Packed, nested, sparse and complex tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from tests.trace.difficult.cases import Difficult


class Packed(nn.Module):
    """A packed batch through a GRU, and padded again."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(16, 32, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        padded: Tensor = pad_packed_sequence(out, batch_first=True)[0]
        return padded


class PackedCells(nn.Module):
    """A list of sequences, packed, and one step at a time by the batch sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(16, 32)

    def forward(self, sequences: list[Tensor]) -> Tensor:
        packed = pack_sequence(sequences, enforce_sorted=False)
        state = packed.data.new_zeros(len(sequences), 32)
        start = 0
        for size in packed.batch_sizes.tolist():
            state = torch.cat(
                (self.cell(packed.data[start : start + size], state[:size]), state[size:])
            )
            start += size
        return state


class Jagged(nn.Module):
    """A nested tensor of sequences of different lengths, in the jagged layout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, sequences: list[Tensor]) -> Tensor:
        nested = torch.nested.as_nested_tensor(sequences, layout=torch.jagged)
        y = self.layer(nested).relu()
        padded: Tensor = y.to_padded_tensor(0.0)
        return padded


class GraphConvolution(nn.Module):
    """A sparse adjacency matrix times dense features."""

    def __init__(self, csr: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        index = torch.stack((torch.arange(100), torch.arange(100).roll(1)))
        adjacency = torch.sparse_coo_tensor(index, torch.ones(100), (100, 100)).coalesce()
        self.register_buffer("adjacency", adjacency.to_sparse_csr() if csr else adjacency)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.adjacency, self.layer(x))


class TwoSteps(nn.Module):
    """The neighbours of neighbours: a product of two sparse matrices that forward makes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, rows: Tensor, columns: Tensor, x: Tensor) -> Tensor:
        ones = torch.ones(columns.numel())
        near = torch.sparse_csr_tensor(rows, columns, ones, (100, 100))
        far = (near @ near).to_sparse_coo()
        source, target = far.indices()
        y: Tensor = self.layer(x)
        return torch.zeros_like(y).index_add(0, target, y[source])


class SparseAttention(nn.Module):
    """A sparse tensor made of values that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.randn(300))

    def forward(self, index: Tensor, x: Tensor) -> Tensor:
        matrix = torch.sparse_coo_tensor(index, self.values, (100, 100))
        return torch.sparse.mm(matrix, x)


class Spectral(nn.Module):
    """Complex weights on the modes of a Fourier transform."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, 16, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        modes = torch.fft.rfft(x)
        out = torch.zeros(x.shape[0], 8, x.shape[-1] // 2 + 1, dtype=torch.cfloat)
        out[:, :, :16] = torch.einsum("bix,iox->box", modes[:, :, :16], self.weight)
        return torch.fft.irfft(out, n=x.shape[-1])


class Spectrogram(nn.Module):
    """Short-time Fourier transforms there and back, with a mask between."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(33, 33)
        self.window: Tensor
        self.register_buffer("window", torch.hann_window(64))

    def forward(self, wave: Tensor) -> Tensor:
        spectrum = torch.stft(wave, 64, window=self.window, return_complex=True)
        mask = self.layer(spectrum.abs().transpose(1, 2)).sigmoid().transpose(1, 2)
        return torch.istft(spectrum * mask, 64, window=self.window, length=wave.shape[-1])


def _sequences() -> list[Tensor]:
    return [torch.randn(length, 64) for length in (5, 9, 7)]


def _padded() -> Any:
    return torch.randn(4, 10, 16), torch.tensor([10, 3, 7, 5])


DIFFICULT = (
    Difficult("packed sequences", Packed, _padded),
    Difficult(
        "packed sequences, step by step",
        PackedCells,
        lambda: ([torch.randn(length, 16) for length in (3, 9, 5)],),
    ),
    Difficult("nested tensors, jagged", Jagged, lambda: (_sequences(),)),
    Difficult(
        "a sparse matrix",
        GraphConvolution,
        lambda: torch.randn(100, 64),
        kernels=frozenset({"aten::zeros"}),  # of the product in backward
    ),
    Difficult(
        "a sparse matrix by rows",
        lambda: GraphConvolution(csr=True),
        lambda: torch.randn(100, 64),
        real=(),  # torch can't copy the model
    ),
    Difficult(
        "a product of two sparse matrices",
        TwoSteps,
        lambda: (2 * torch.arange(101), torch.arange(200) % 100, torch.randn(100, 64)),
        real=(),  # MKL's product takes memory past torch's allocator
    ),
    Difficult(
        "a sparse matrix of trained values",
        SparseAttention,
        lambda: (torch.randint(100, (2, 300)), torch.randn(100, 64)),
        # The CPU's kernel leaves the room of entries that it joined; CUDA's does not.
        kernels=frozenset({"aten::_coalesce", "aten::ones"}),
    ),
    Difficult(
        "sparse gradients",
        lambda: nn.Embedding(100, 64, sparse=True),
        lambda: torch.arange(32),
        options={"optimizer": "sgd"},
    ),
    Difficult("complex weights and fft", Spectral, lambda: torch.randn(4, 8, 64)),
    Difficult(
        "stft and istft",
        Spectrogram,
        lambda: torch.randn(2, 1024),
        kernels=frozenset({"aten::arange"}),  # a range of integers is made of doubles
    ),
)
