"""What ONNX Runtime's own attention kernels allocate for themselves while they run, in fp32.

Letters: batch B, sequence S, keys L, past P, all keys T = P + L, heads N, sizes of a head H.

Sources: onnxruntime/contrib_ops/cpu/bert/attention.cc, multihead_attention.cc and
attention_cpu_base.h; contrib_ops/cpu/quantization/attention_quant.cc.
"""

from __future__ import annotations

import math

from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.calls import NONE, Rule, Scratch, Shape, Shapes

_FLOAT = 4
_GEMM = 64
"""sizeof(MLAS_SGEMM_DATA_PARAMS): one for each head of each image, as measured with 1.31.1."""

_CACHE = 2**20
"""Bytes of the L2 cache that the tiles of flash attention are made for, as measured."""


def _self_attention(node: Node, shapes: Shapes) -> Scratch:
    """Query, key and value in one block; then mask, scores and result.

    Input [B, S, D], weight [D, 3 * N * H], a mask of Attention is its fourth input, of
    QAttention its sixth, the past [2, B, N, P, H] its fifth or ninth.
    Source: ``Attention<T>::Compute``, ``QAttention<T>::Compute``.
    """
    given, bias, made = shapes.given(0), shapes.given(2), shapes.made(0)
    heads = int(node.attributes["num_heads"])
    if given is None or bias is None or made is None:
        return NONE
    mask, past = (5, 8) if node.op == "QAttention" else (3, 4)
    before = shapes.given(past)
    batch, sequence = given[:2]
    keys = sequence + (before[3] if before is not None else 0)
    is_causal = bool(node.attributes.get("unidirectional")) and sequence > 1
    scores = _scores(batch, heads, sequence, keys, made[2] // heads)
    masked = _mask(shapes.given(mask), batch, sequence, keys, is_causal=is_causal)
    return Scratch((_FLOAT * batch * sequence * bias[0], *masked, *scores))


def _mask(
    given: Shape | None, batch: int, sequence: int, keys: int, *, is_causal: bool
) -> tuple[int, ...]:
    """The mask in fp32: of each query if it is causal or given so, else of each key."""
    if is_causal or (given is not None and len(given) > 2):
        return (_FLOAT * batch * sequence * keys,)
    return () if given is None else (_FLOAT * batch * keys,)


def _scores(batch: int, heads: int, sequence: int, keys: int, head: int) -> tuple[int, ...]:
    """[B, N, S, T], the result before it is turned [B, N, S, H], and a record for each head."""
    rows = batch * heads * sequence
    return (_FLOAT * rows * keys, _FLOAT * rows * head, _GEMM * batch * heads)


def _heads(node: Node, shapes: Shapes) -> Scratch:
    """Query, key and value turned to heads; then the tiles of flash attention, or the scores.

    With a bias each of the three has it added in another block first, which passes.
    Source: ``MultiHeadAttention<T>::Compute``, ``MaybeTransposeToBNSHAndAddBias``.
    """
    query, key, value = (shapes.given(position) for position in range(3))
    made = shapes.made(0)
    if query is None or made is None or len(query) != 3 or key is None or value is None:
        return NONE
    heads = int(node.attributes["num_heads"])
    batch, sequence = query[:2]
    is_turned = len(key) == 4  # key and value come as [B, N, L, H]
    given = [query] if is_turned else [query, key, value]
    blocks = [_FLOAT * math.prod(one) for one in given]
    passing = tuple((at + 1, _with_bias(one)) for at, one in enumerate(given) if shapes.has(3))
    length = key[2] if is_turned else key[1]
    head, value_head = query[2] // heads, made[2] // heads
    is_causal = bool(node.attributes.get("unidirectional"))
    kept = any(shapes.made(at) is not None for at in (1, 2))
    if not is_turned and not is_causal and not kept and not any(map(shapes.has, (4, 5, 6, 7))):
        blocks.append(shapes.threads * tile_bytes(sequence, length, head, value_head))
        return Scratch(tuple(blocks), passing=passing)
    past = shapes.given(6)
    keys = length + (past[2] if past is not None else 0)
    blocks += _mask(shapes.given(4), batch, sequence, keys, is_causal=is_causal and sequence > 1)
    blocks += _scores(batch, heads, sequence, keys, value_head)
    return Scratch(tuple(blocks), passing=passing)


def _with_bias(given: Shape) -> tuple[int, ...]:
    """The sum with the bias, and the part of the bias; for one query the latter alone."""
    sums = (_FLOAT * math.prod(given),) if given[1] != 1 else ()
    return (*sums, _FLOAT * given[2])


def tile_bytes(sequence: int, keys: int, head: int, value_head: int) -> int:
    """What one thread of flash attention works in: two rows, a tile of scores, one of results.

    Its tiles fill the L2 cache of the processor: they are those of a cache of 1 MiB.
    """
    columns = max(_CACHE // (4 * _FLOAT * (head + value_head)), 1)
    rows = min(columns, head + value_head, sequence)
    columns = min(columns, keys)
    return _FLOAT * rows * (2 + columns + value_head)


def _grouped(node: Node, shapes: Shapes) -> Scratch:
    """Query, key and value turned to heads, those two that are rotated, and flash attention.

    The keys are as many as the present ones have room for.
    Source: ``GroupQueryAttention<T>::Compute`` in group_query_attention.cc and
    ``GQAAttentionBase::ApplyAttentionFlash`` in gqa_attention_base.h, of after 1.24.
    """
    query, key, value, present = (*(shapes.given(p) for p in range(3)), shapes.made(1))
    if query is None or present is None:
        return NONE
    batch, sequence, head = query[0], query[1], present[3]
    given = [query] if key is None or value is None else [query, key, value]
    blocks = [_FLOAT * math.prod(one) for one in given]
    passing: tuple[tuple[int, tuple[int, ...]], ...] = ()
    if node.attributes.get("do_rotary"):
        blocks += blocks[:2]
        passing = ((len(blocks), (8 * batch * sequence,)),)
    tile = tile_bytes(sequence, present[2], head, head)
    one_row = _FLOAT * (present[2] + head)
    return Scratch((*blocks, shapes.threads * (one_row if sequence == 1 else tile)), 0, passing)


_MICROSOFT = "com.microsoft"
ATTENTION: dict[tuple[str, str], Rule] = {
    (_MICROSOFT, "Attention"): _self_attention,
    (_MICROSOFT, "QAttention"): _self_attention,
    (_MICROSOFT, "MultiHeadAttention"): _heads,
    (_MICROSOFT, "GroupQueryAttention"): _grouped,
}
