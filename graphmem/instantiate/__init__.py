"""Instantiation: the schedule of a run at one size, from its records at a few others.

Tracing a model costs most of an analysis. Its schedule at another batch is the same but for
numbers, which are polynomials of the batch, and for what the target's kernels choose by them.

- ``polynomials``: numbers seen at several sizes, and what they are at another;
- ``patterns``: nested values with such numbers in them;
- ``rules`` and ``results``: the target's rules, asked again at another size;
- ``template``: a whole schedule;
- ``family``: which sizes are traced, and which follow from those;
- ``subject``: tracing what the command line names.
"""

from graphmem.instantiate.family import Family
from graphmem.instantiate.subject import record_subject
from graphmem.instantiate.template import Recorded, Template

__all__ = ["Family", "Recorded", "Template", "record_subject"]
"""The names that other rooms use."""
