"""bitsandbytes' own operators, where a user's loop calls them.

Source: bitsandbytes/backends/cuda/ops.py, ``gemm_4bit``, ``_dequant_linear_fallback``,
``dequantize_4bit``, ``dequantize_blockwise``, ``optimizer_update_32bit`` and
``optimizer_update_8bit_blockwise`` (bitsandbytes 0.50.2).
"""

from __future__ import annotations

from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda.calls import argument
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

FUSED_ROWS = 4
"""Up to so many rows every GPU runs a kernel that makes no weight."""


@scratch("bitsandbytes::gemm_4bit", target=Target.CUDA)
def product(call: Call) -> Scratch:
    """The whole weight in the input's dtype, and of packed maxima two fp32 forms before.

    Up to 1,536 rows some GPUs and sizes take a kernel that needs neither; that is taken to be
    so up to 4 rows, where it always is.
    Inputs: A [..., K], packed weight, its shape (N, K), absmax, ..., absmax_8bit.
    """
    rows: Layout = call.args[0]
    count, width = call.args[2]
    if rows.numel // width <= FUSED_ROWS:
        return ()
    weight = count * width * rows.dtype.itemsize
    packed = argument(call, 7, "absmax_8bit")
    maxima = () if packed is None else (4 * packed.numel, 4 * packed.numel)
    return ((*maxima, weight),)


@scratch(
    "bitsandbytes::dequantize_4bit",
    "bitsandbytes::dequantize_blockwise",
    "bitsandbytes::optimizer_update_32bit",
    "bitsandbytes::optimizer_update_8bit_blockwise",
    target=Target.CUDA,
)
def one_kernel(call: Call) -> Scratch:
    """Nothing: one kernel that writes its result, or its arguments."""
    return ()
