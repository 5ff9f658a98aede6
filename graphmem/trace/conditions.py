"""What the source says of a line that asks for a truth value: a loop's condition, or a branch.

A value that nobody has is taken to be False; in a loop that would go on for ever, or never
begin. So of a condition this says what makes its loop go on:

1. ``while X:`` and ``while not X:`` go on while X is true, or false.
2. ``if X: break`` (or ``return``) inside of ``while True:`` goes on while X is false.
3. Everything else is a branch.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Condition:
    """``goes_on`` is the value that runs a loop once more; None for a branch."""

    goes_on: bool | None = None


_BRANCH = Condition()


def condition_at(filename: str, line: int) -> Condition:
    """The condition on a line of a file; a branch where its source can't be read."""
    return _conditions(filename).get(line, _BRANCH)


@lru_cache(maxsize=64)
def _conditions(filename: str) -> dict[int, Condition]:
    """The lines of a file that loops' conditions stand on."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return {}
    return dict(_of_loops(tree))


def _of_loops(tree: ast.AST) -> Iterator[tuple[int, Condition]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.While):
            continue
        if isinstance(node.test, ast.Constant):
            for leaving in _leaving(node.body):
                yield from _on_lines(leaving.test, not _truth(leaving.test))
        else:
            yield from _on_lines(node.test, _truth(node.test))


def _truth(test: ast.expr) -> bool:
    """The value of what stands behind ``not`` that makes a condition true."""
    return not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _on_lines(test: ast.expr, goes_on: bool) -> Iterator[tuple[int, Condition]]:
    for line in range(test.lineno, (test.end_lineno or test.lineno) + 1):
        yield line, Condition(goes_on)


def _leaving(body: list[ast.stmt]) -> Iterator[ast.If]:
    """The branches in the body of an endless loop that leave it."""
    for statement in body:
        if isinstance(statement, ast.If):
            if any(isinstance(s, ast.Break | ast.Return) for s in statement.body):
                yield statement
            yield from _leaving(statement.body)
            yield from _leaving(statement.orelse)
        elif isinstance(statement, ast.With | ast.Try):
            yield from _leaving(statement.body)
