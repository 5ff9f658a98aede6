"""Plans: what to change so that a training fits, each change simulated.

- ``technique``: one change, what it loses, and the least that it may leave;
- ``candidates``: the techniques there are, one idea a file;
- ``bound``: which combinations can't fit, without a trace;
- ``search``: the cheapest combinations that fit;
- ``blocks`` and ``checkpoints``: the cheapest set of blocks to checkpoint;
- ``answer``: the result, and its JSON form;
- ``api``: ``graphmem.plan``.
"""

from graphmem.plans.answer import Plan
from graphmem.plans.api import made, plan

__all__ = ["Plan", "made", "plan"]
"""The names that other rooms use."""
