"""Every error that graphmem raises on purpose.

GraphmemError
├── UsageError            an option or argument that can't be used
├── ModelLoadError        the subject can't be found, imported or built
├── InputError            an input is missing, or has the wrong shape or type
├── TraceError            the model's own code failed while it was traced
│   ├── ValueNeededError      a branch or a size depends on a value that is not known
│   └── UnsupportedOpError    an operator has no kernel that tells its output's shape
└── InvariantError        a broken invariant of graphmem itself: a bug of ours

A message is one line: what went wrong, where, and what to do about it. Only
``graphmem.cli.main`` catches these; it prints the line and returns ``ExitCode.UNUSABLE``.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of the command line."""

    OK = 0
    FAILED = 1  # a budget or a verification failed
    UNUSABLE = 2  # the command or the model can't be used


class GraphmemError(Exception):
    """The root of every error raised on purpose."""


class UsageError(GraphmemError):
    """An option or argument that can't be used."""


class ModelLoadError(GraphmemError):
    """The subject can't be found, imported or built."""


class InputError(GraphmemError):
    """An input is missing, or has the wrong shape or type."""


class TraceError(GraphmemError):
    """The model's own code failed while it was traced."""


class ValueNeededError(TraceError):
    """A branch or a size depends on a value that nothing is known of."""


class UnsupportedOpError(TraceError):
    """An operator has no kernel that tells the shape of its output."""


class InvariantError(GraphmemError):
    """A broken invariant of graphmem itself: a bug, please report it."""


def one_line(error: BaseException) -> str:
    """The first line of an error's message that says something, or its type where none does."""
    text = " ".join(str(error).strip().split("\n", 1)[0].split())
    return text or type(error).__name__


_LONGEST = 80
"""Characters of a user's text that a message shows."""


def shown(text: str) -> str:
    """A name or text of the user's in quotes, in one line, shortened where it is long."""
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
