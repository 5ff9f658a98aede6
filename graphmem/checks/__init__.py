"""Budgets: what a model may take, in a project's settings or from a user, and whether it does."""

from graphmem.checks.baseline import Baseline
from graphmem.checks.judge import Failure, FailureKind, Outcome, failed, judge
from graphmem.checks.limits import Growth, Limits, parse_growth
from graphmem.checks.settings import Checked, Settings, find_settings, read_settings

__all__ = [
    "Baseline",
    "Checked",
    "Failure",
    "FailureKind",
    "Growth",
    "Limits",
    "Outcome",
    "Settings",
    "failed",
    "find_settings",
    "judge",
    "parse_growth",
    "read_settings",
]
