"""The textbook's formula for training memory, and the simulated run beside it."""

from graphmem.textbook.api import Estimate, estimate, of_report
from graphmem.textbook.compared import Compared, Simulated
from graphmem.textbook.formula import Numbers, Term, terms

__all__ = [
    "Compared",
    "Estimate",
    "Numbers",
    "Simulated",
    "Term",
    "estimate",
    "of_report",
    "terms",
]
