"""Rules of the user's own, for operators that graphmem has none for, or another one.

A file for ``--rules`` has, for each operator::

    from graphmem import onnx_rule

    @onnx_rule("TopKMask", domain="com.acme")
    def top_k_mask(call, x, k):
        return x >= x.topk(call.integer("k"), dim=-1).values[..., -1:]
"""

from __future__ import annotations

from collections.abc import Callable

from graphmem.errors import UsageError
from graphmem.sources.importing import imported
from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.registry import Registered, Rule

_RULES: dict[tuple[str, str], dict[int, Registered]] = {}


def onnx_rule(
    *ops: str, domain: str = "", since: int = 1, constants: tuple[int, ...] = ()
) -> Callable[[Rule], Rule]:
    """Say what operators of an ONNX domain are in torch, for this process.

    The decorated function takes a call, whose attributes are ``call.integer("axis", -1)``,
    ``call.number``, ``call.text``, ``call.integers``, ``call.numbers`` and ``call.get``, and the
    node's inputs: tensors, None for one that is left out. It returns the output, or a tuple of
    all of them, and may call whatever torch has: its memory is traced. It goes before
    graphmem's own rule, and a later one of the same operator and opset replaces it.

    Args:
        ops: the operators' names.
        domain: their domain; empty for ONNX's own.
        since: the opset of the domain that it holds from.
        constants: positions of inputs that are not trained where they are weights.

    Raises:
        UsageError: no operator is named.
    """
    if not ops or not all(isinstance(op, str) for op in ops):
        raise UsageError('onnx_rule: name the operators, as @onnx_rule("MyOp", domain="com.acme")')

    def register(function: Rule) -> Rule:
        for op in ops:
            known = _RULES.setdefault(("" if domain == "ai.onnx" else domain, op), {})
            known[since] = Registered(function, since, frozenset(constants))
        return function

    return register


def user_rule(node: Node) -> Registered | None:
    """The user's rule for a node, if there is one."""
    known = _RULES.get((node.domain, node.op), {})
    since = max((version for version in known if version <= node.version), default=None)
    return None if since is None else known[since]


def load_rules(path: str) -> None:
    """Run the file of ``--rules``, which registers rules with ``graphmem.onnx_rule``.

    Raises:
        UsageError: the file is no Python file, or registers nothing.
        ModelLoadError: there is no such file, or its code fails.
    """
    if not path.endswith(".py"):
        raise UsageError(f"--rules {path}: name a Python file, such as my_ops.py")
    before = {key: dict(known) for key, known in _RULES.items()}
    imported(path)
    if before == _RULES:
        raise UsageError(
            f"--rules {path}: it registers no rule; "
            'decorate functions with @graphmem.onnx_rule("MyOp", domain="com.acme")'
        )
