"""Random draws that need temporaries.

Source: aten/src/ATen/native/Distributions.cpp (``multinomial_out``),
aten/src/ATen/native/cuda/MultinomialKernel.cu
(``multinomial_with_replacement_kernel_impl``) and Randperm.cu (``randperm_out_cuda``).
"""

from __future__ import annotations

import math

from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda import cub
from graphmem.targets.cuda.calls import argument, nbytes
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch


@scratch("aten::multinomial", target=Target.CUDA)
def multinomial(call: Call) -> Scratch:
    """One draw, or several different ones: probabilities over exponentials, in a tensor.

    Draws that may repeat take a copy of the distribution, its sums and their inverse at most.
    Inputs: self [N, M] or [M], num_samples, replacement.
    """
    weights: Layout = call.args[0]
    repeated = bool(argument(call, 2, "replacement", False))
    if call.args[1] == 1:
        return ((nbytes(weights),),)
    if not repeated:  # the largest, with values that are dropped
        return ((nbytes(weights), call.result.numel * weights.dtype.itemsize),)
    return ((nbytes(weights),) * 3,)


@scratch("aten::randperm", target=Target.CUDA)
def randperm(call: Call) -> Scratch:
    """The numbers in order, random keys, and both sorted. Inputs: n.

    The keys have as many bits as make it improbable (below a tenth) that two are equal.
    """
    result: Layout = call.result
    n, item = result.numel, result.dtype.itemsize
    if not n:
        return ()
    bits = min(64, math.ceil(math.log2(n - (6.0 * n * n + 1) / (math.log(0.9) * 12))))
    key = 4 if bits <= 32 else 8
    return ((n * item, n * key, n * key, cub.radix_sort(n, key, item, bits, call.gpu)),)
