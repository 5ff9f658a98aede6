"""cuDNN: what its convolutions take beside their tensors, by asking the library itself.

cuDNN's own heuristics and plans answer for a GPU that is only described, so no GPU is
needed: ``library`` finds and loads it, ``backend`` calls it, ``plans`` chooses a plan as
PyTorch does, ``convolution`` and ``convolution_results`` hold the rules of the operators, of
which ``operands`` reads the arguments. ``selection`` says when
PyTorch takes cuDNN at all, ``native`` what its own kernels take where it does not, and
``table`` what is assumed where no library is installed. ``attention`` is the part of
attention's workspace that is known without asking.
"""

from graphmem.targets.cuda.cudnn import attention, convolution, convolution_results

__all__ = ["attention", "convolution", "convolution_results"]
