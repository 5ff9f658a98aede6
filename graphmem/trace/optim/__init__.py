"""Optimizers of other packages, as models of the states and temporaries that they allocate.

Each is an optimizer of PyTorch's that allocates what the package's does, with its source; the
arithmetic of a fused kernel, which allocates nothing, is one in-place addition. So an analysis
needs none of the packages. Their own classes run under a trace as well, where they are given
as classes; the tests compare the two.
"""

from graphmem.trace.optim.hints import Hints, hints_of
from graphmem.trace.optim.names import ALIASES, MODELS, Model, of_class
from graphmem.trace.optim.written import written

__all__ = ["ALIASES", "MODELS", "Hints", "Model", "hints_of", "of_class", "written"]
