"""Random draws that need temporaries.

Source: aten/src/ATen/native/Distributions.cpp (``multinomial_out``) and
aten/src/ATen/native/cuda/MultinomialKernel.cu
(``multinomial_with_replacement_kernel_impl``).
"""

from __future__ import annotations

from graphmem.options import Target
from graphmem.schedule import Scratch
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
