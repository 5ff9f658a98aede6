"""The largest size of a run that fits: of its batch, or of any other dimension.

- ``dimension``: which size is changed, and how a subject is asked for another;
- ``memory``: what it has to fit into, a GPU or a budget;
- ``search``: the largest that fits, from a few traces;
- ``stopping``: what stops the next one;
- ``curve``: the peak at all sizes below, and where another term becomes the largest;
- ``answer``: the numbers, and their JSON form;
- ``api``: ``graphmem.max_batch``.
"""

from graphmem.largest.answer import MaxBatch
from graphmem.largest.api import largest, max_batch
from graphmem.largest.dimension import requests
from graphmem.largest.memory import Memory

__all__ = ["MaxBatch", "Memory", "largest", "max_batch", "requests"]
"""The names that other rooms use."""
