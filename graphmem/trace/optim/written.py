"""An optimizer as it is written on a command line: ``sgd(momentum=0.9, nesterov=True)``."""

from __future__ import annotations

import ast
from typing import Any

from graphmem.errors import UsageError, shown


def written(text: str) -> tuple[str, dict[str, Any]]:
    """The name in lower case, and the arguments.

    Raises:
        UsageError: if it is neither a name nor a call with literal keyword arguments.
    """
    name, has, rest = text.partition("(")
    if not has:
        return text.strip().lower(), {}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("positional arguments")
        return name.strip().lower(), {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError):
        raise UsageError(
            f"optimizer: {shown(text)} is not a name or a call such as sgd(momentum=0.9)"
        ) from None
