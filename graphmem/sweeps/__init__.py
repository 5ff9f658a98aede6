"""Sweeps: many analyses at once, of one model at many sizes or of many models.

- ``case``: what is analyzed, and a grid of it;
- ``chunks``: cases that are the same but for one size go together, and share their traces;
- ``work``: what a process does with a chunk;
- ``local``: processes of this machine, of which each may crash for itself;
- ``identity`` and ``cache``: answers on disk, by the content of all that they depend on;
- ``run``: the sweep itself.

Importing it does not import torch: that is for the processes that analyze.
"""

from graphmem.sweeps.case import Case, cases
from graphmem.sweeps.outcome import Answer, Outcome
from graphmem.sweeps.run import sweep

__all__ = ["Answer", "Case", "Outcome", "cases", "sweep"]
"""The names that other rooms use."""
