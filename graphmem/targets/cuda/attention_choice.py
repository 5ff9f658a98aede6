"""scaled_dot_product_attention: which kernel CUDA runs, and why not one that comes before.

The backends are asked in an order that the architecture decides; the first that refuses
nothing runs. Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp,
``priority_order``, ``select_sdp_backend`` and the ``can_use_*`` functions (torch 2.14), and
include/ATen/native/transformers/sdp_utils_cpp.h of both releases for what differs in 2.13.
Not covered: nested tensors, and flash attention 3, which a user has to switch on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem.devices import DEFAULT, Gpu
from graphmem.targets.cuda.versions import TORCH_VERSION, cudnn_version

_HALF = (torch.float16, torch.bfloat16)
_NAMES = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}
"""``at::SDPBackend``, include/ATen/SDPBackend.h."""
_DEFAULT_ORDER = ["flash", "efficient", "math", "cudnn"]
_CUDNN_MOST_HEADS = 65535


@dataclass(frozen=True, slots=True)
class Attention:
    """One call; q, k and v are [batch, heads, sequence, head dimension]."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    dropout_p: float
    is_causal: bool
    enable_gqa: bool = False
    gpu: Gpu = DEFAULT

    def choice(self) -> tuple[str, str]:
        """``"flash"``, ``"efficient"``, ``"cudnn"`` or ``"math"``, and why.

        Raises:
            RuntimeError: as PyTorch does, where those that can run it are switched off.
        """
        refusals: list[str] = []
        for backend in self._order():
            refusal = self.refusal(backend)
            if refusal is None:
                return backend, "; ".join(refusals) or "the first in PyTorch's order"
            refusals.append(f"not {backend}: {refusal}")
        raise RuntimeError(f"no kernel of attention can run: {'; '.join(refusals)}")

    @property
    def settings(self) -> tuple[float, bool, bool, Gpu]:
        """The arguments behind the four tensors."""
        return self.dropout_p, self.is_causal, self.enable_gqa, self.gpu

    def refusal(self, backend: str) -> str | None:
        """Why a backend can't run the call; None if it can."""
        checks: dict[str, Callable[[], Iterator[str]]] = {
            "flash": self._against_flash,
            "efficient": self._against_efficient,
            "cudnn": self._against_cudnn,
            "math": self._against_math,
        }
        return next(checks[backend](), None)

    def _order(self) -> list[str]:
        """The user's own order (``sdpa_kernel(..., set_priority=True)``), or the GPU's."""
        order = [_NAMES[n] for n in torch._C._get_sdp_priority_order() if n in _NAMES]
        prefers_cudnn = self.gpu.compute_capability[0] in (9, 10) and cudnn_version() > 91500
        if order == _DEFAULT_ORDER and prefers_cudnn and not _deprioritized():
            return ["cudnn", "flash", "efficient", "math"]
        return order

    # -- what every fused kernel refuses

    def _against_all(self, *, gqa: bool, ignore_singleton: bool) -> Iterator[str]:
        q, k, v = self.q, self.k, self.v
        if not q.dim() == k.dim() == v.dim() == 4:
            yield "query, key and value are not 4-D"
            return
        if not q.dtype is k.dtype is v.dtype:
            yield "query, key and value have several dtypes"
        if not q.shape[0] == k.shape[0] == v.shape[0]:
            yield "query, key and value have several batch sizes"
        if min(q.shape[2], k.shape[2]) == 0:
            yield "a sequence is empty"
        yield from self._against_heads(gqa=gqa)
        tensors = (q, k, v) if self.mask is None else (q, k, v, self.mask)
        if not all(_dense(t, ignore_singleton and t is not self.mask) for t in tensors):
            yield "a last dimension has a stride other than 1"

    def _against_heads(self, *, gqa: bool) -> Iterator[str]:
        heads, k_heads, v_heads = (t.shape[1] for t in (self.q, self.k, self.v))
        if heads == k_heads == v_heads:
            return
        if self.enable_gqa and gqa:
            if k_heads != v_heads or heads % k_heads:
                yield f"{heads} heads are not grouped by {k_heads} and {v_heads}"
        elif not (TORCH_VERSION >= (2, 14) and k_heads == v_heads == 1):
            yield "key and value have fewer heads, and this backend takes no groups of queries"

    # -- what each refuses

    def _against_flash(self) -> Iterator[str]:
        if not torch.backends.cuda.flash_sdp_enabled():
            yield "it is switched off"
        if not (8, 0) <= self.gpu.compute_capability <= (12, 1):
            yield _outside(self.gpu, "8.0 to 12.1")
        if self.mask is not None:
            yield "it takes no mask"
        if self.q.dtype not in _HALF:
            yield f"it takes float16 and bfloat16, not {_name(self.q.dtype)}"
        head = self.q.shape[-1]
        if not head == self.k.shape[-1] == self.v.shape[-1] or head > 256:
            yield "head dimensions differ or are above 256"
        trains = self.requires_grad() and self.gpu.sm in (86, 87, 89, 120, 121)
        if trains and not (head <= 192 or (self.dropout_p == 0 and head > 224)):
            yield f"no backward for a head dimension of {head} on SM {_sm(self.gpu)}"
        if self.is_causal and self.q.shape[-2] != self.k.shape[-2]:
            yield "is_causal, and query and key differ in length"
        yield from self._against_all(gqa=True, ignore_singleton=True)

    def _against_efficient(self) -> Iterator[str]:
        half = self.q.dtype in _HALF
        if not torch.backends.cuda.mem_efficient_sdp_enabled():
            yield "it is switched off"
        if not (5, 0) <= self.gpu.compute_capability <= (12, 1):
            yield _outside(self.gpu, "5.0 to 12.1")
        bf16 = self.q.dtype is torch.bfloat16
        if not half and self.q.dtype is not torch.float32:
            yield f"it takes float16, bfloat16 and float32, not {_name(self.q.dtype)}"
        if bf16 and self.gpu.compute_capability < (8, 0):
            yield f"no bfloat16 on SM {_sm(self.gpu)}"
        alignment = _gemm_alignment(self.gpu, half=half)
        if self.q.shape[-1] != self.k.shape[-1]:
            yield "head dimensions of query and key differ"
        if self.q.shape[-1] % alignment or self.v.shape[-1] % alignment:
            yield f"a head dimension is no multiple of {alignment}"
        tensors = (self.q, self.k, self.v)
        if self.gpu.compute_capability >= (8, 0) and any(
            t.storage_offset() % alignment for t in tensors
        ):
            yield f"query, key or value does not start at a multiple of {alignment} elements"
        # The kernels of 2.13 have no heads of key and value of their own (kernel_forward.h).
        yield from self._against_all(gqa=TORCH_VERSION >= (2, 14), ignore_singleton=False)

    def _against_cudnn(self) -> Iterator[str]:
        if not torch.backends.cuda.cudnn_sdp_enabled():
            yield "it is switched off"
        if not (8, 0) <= self.gpu.compute_capability <= (12, 1):
            yield _outside(self.gpu, "8.0 to 12.1")
        if self.q.dtype not in _HALF:
            yield f"it takes float16 and bfloat16, not {_name(self.q.dtype)}"
        if torch.are_deterministic_algorithms_enabled() and not (
            torch.is_deterministic_algorithms_warn_only_enabled()
        ):
            yield "it is not deterministic"
        if self.dropout_p * 16 % 1:
            yield "its dropout is a multiple of 1/16"
        yield from self._against_all(gqa=True, ignore_singleton=True)
        yield from self._against_cudnn_shapes()

    def _against_cudnn_shapes(self) -> Iterator[str]:
        batch, heads, rows, head = self.q.shape
        columns, v_head = self.k.shape[2], self.v.shape[3]
        if max(batch, heads) > _CUDNN_MOST_HEADS:
            yield f"batch or heads above {_CUDNN_MOST_HEADS}"
        limit = self._cudnn_head_limit(head, v_head)
        if max(head, v_head) > limit:
            yield f"a head dimension above {limit}"
        if head % 8 or v_head % 8:
            yield "a head dimension is no multiple of 8"
        if columns == 1:
            yield "one key only"
        if self.dropout_p and rows == 1:
            yield "one query with dropout"
        if limit == 256 and self.requires_grad():
            pairs = {(192, 128), (256, 256)}
            if max(head, v_head) > 128 and (head, v_head) not in pairs:
                yield f"no backward for head dimensions of {head} and {v_head}"

    def _cudnn_head_limit(self, head: int, v_head: int) -> int:
        """``check_cudnn_tensor_shapes``; 2.13 has no head dimension of 256 yet."""
        if self.gpu.compute_capability[0] not in (9, 10):
            return 128
        if TORCH_VERSION >= (2, 14) and cudnn_version() > 92200:
            return 256
        return 192 if (head, v_head) == (192, 128) and cudnn_version() >= 91100 else 128

    def _against_math(self) -> Iterator[str]:
        if not torch.backends.cuda.math_sdp_enabled():
            yield "it is switched off"

    def requires_grad(self) -> bool:
        """Whether a backward will need what the call saves (``input_requires_grad``)."""
        return torch.is_grad_enabled() and any(t.requires_grad for t in (self.q, self.k, self.v))


def _deprioritized() -> bool:
    return os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1"


def _gemm_alignment(gpu: Gpu, *, half: bool) -> int:
    """Elements that the memory-efficient kernels move at a time (``minimum_gemm_alignment``)."""
    major = gpu.compute_capability[0]
    tensor_cores = major >= 8 or (major == 7 and half)
    least = 4 if major >= 8 else 1
    return max(least, 128 // (16 if half else 32)) if tensor_cores else least


def _dense(tensor: Tensor, ignore_singleton: bool) -> bool:
    return tensor.stride(-1) == 1 or (ignore_singleton and tensor.shape[-1] == 1)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _sm(gpu: Gpu) -> str:
    return ".".join(map(str, gpu.compute_capability))


def _outside(gpu: Gpu, supported: str) -> str:
    return f"it runs on SM {supported}, not {_sm(gpu)}"
