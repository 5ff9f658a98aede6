"""cuDNN's attention: the part of its workspace that is known without a GPU.

cuDNN compiles attention's kernels when a plan is made, with a CUDA driver: without one its
heuristics have no engine for the graph (9.24: "Cannot load CUDA driver library"), so the
plan's own workspace can't be asked. What the front end adds to it is written down.
"""

from __future__ import annotations

from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda.cudnn.formats import nbytes
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

_FLOAT_BYTES = 4


@scratch("aten::_scaled_dot_product_cudnn_attention_backward", target=Target.CUDA)
def backward(call: Call) -> Scratch:
    """One block: an fp32 accumulator of dq [B, H, Sq, D], and row sums [B, H, Sq, 1].

    Inputs: grad_out [B, H, Sq, Dv], query [B, H, Sq, D], ... A grad_out whose last dimension
    is not dense is copied first.
    Source: cudnn_frontend, node/scaled_dot_product_flash_attention.h,
    ``CompositeSDPABackwardNode`` (``dQ_accum_size``, ``softmax_sum_size``; without bias
    gradient and deterministic mode); aten/src/ATen/native/cudnn/MHA.cpp,
    ``run_cudnn_SDP_bprop``.
    """
    grad: Layout = call.args[0]
    query: Layout = call.args[1]
    if 0 in (grad.numel, query.numel):
        return ()
    rows = query.numel // query.size[-1]
    copy = 0 if grad.stride[-1] == 1 else nbytes(grad)
    return ((copy, _FLOAT_BYTES * (query.numel + rows)),)
