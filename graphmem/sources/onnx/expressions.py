"""Free dimensions that are computed from others: ``2*batch``, ``past + 1``, ``Max(a, b)``.

Exporters write what is no plain name in the syntax of Python or of sympy.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping

_LONGEST = 200
"""Characters; a longer text is taken for a name."""

_BINARY: Mapping[type[ast.operator], Callable[[int, int], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    **{"floor": math.floor, "ceil": math.ceil, "ceiling": math.ceil, "Max": max, "Min": min},
    **{"max": max, "min": min, "Mod": operator.mod, "FloorDiv": operator.floordiv},
}


def names_in(text: str) -> tuple[str, ...]:
    """The names that a dimension's text is computed from; a plain name is its own."""
    tree = _tree(text)
    return (text,) if tree is None else tuple(dict.fromkeys(_names(tree)))


def is_expression(text: str) -> bool:
    """Whether a dimension's text is computed from others."""
    return _tree(text) is not None


def value_of(text: str, sizes: Mapping[str, int]) -> int | None:
    """The size that a text has; None if a name is missing, or it is no whole number."""
    if text in sizes:
        return sizes[text]
    tree = _tree(text)
    if tree is None or any(name not in sizes for name in _names(tree)):
        return None
    try:
        value = _value(tree, sizes)
        return int(value) if value == int(value) else None
    except (ArithmeticError, TypeError, ValueError):
        return None


def solved(text: str, size: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """The one name that is missing, and its size where the text has ``size``.

    None where none or several are missing, or no whole size gives it (linear texts only).
    """
    sizes = {name: known for name, known in sizes.items() if name != text}
    missing = [name for name in names_in(text) if name not in sizes]
    if len(missing) != 1 or not is_expression(text):
        return None
    name = missing[0]
    low, high = (value_of(text, {**sizes, name: at}) for at in (0, 1))
    if low is None or high is None or high == low or (size - low) % (high - low):
        return None
    found = (size - low) // (high - low)
    return (name, found) if value_of(text, {**sizes, name: found}) == size else None


def _tree(text: str) -> ast.expr | None:
    """The text as an expression; None where it is a name, also one that Python can't read."""
    if len(text) > _LONGEST or text.isidentifier():
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return tree if _is_arithmetic(tree) and any(_names(tree)) else None


def _is_arithmetic(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp):
        return type(tree.op) in _BINARY and _is_arithmetic(tree.left) and _is_arithmetic(tree.right)
    if isinstance(tree, ast.Call):
        known = isinstance(tree.func, ast.Name) and tree.func.id in _FUNCTIONS
        return known and not tree.keywords and all(map(_is_arithmetic, tree.args))
    if isinstance(tree, ast.UnaryOp):
        return isinstance(tree.op, ast.USub) and _is_arithmetic(tree.operand)
    return isinstance(tree, ast.Name) or (
        isinstance(tree, ast.Constant) and type(tree.value) is int
    )


def _names(tree: ast.expr) -> Iterator[str]:
    if isinstance(tree, ast.Name):
        yield tree.id
    elif isinstance(tree, ast.Call):
        for argument in tree.args:
            yield from _names(argument)
    elif isinstance(tree, ast.BinOp):
        yield from _names(tree.left)
        yield from _names(tree.right)
    elif isinstance(tree, ast.UnaryOp):
        yield from _names(tree.operand)


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> float:
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    if isinstance(tree, ast.BinOp):
        left, right = _value(tree.left, sizes), _value(tree.right, sizes)
        return _BINARY[type(tree.op)](left, right)  # type: ignore[arg-type]
    if isinstance(tree, ast.UnaryOp):
        return -_value(tree.operand, sizes)
    if isinstance(tree, ast.Call):
        assert isinstance(tree.func, ast.Name)  # checked when it was read
        return _FUNCTIONS[tree.func.id](*(_value(a, sizes) for a in tree.args))
    assert isinstance(tree, ast.Constant)
    return int(tree.value)  # type: ignore[arg-type]
