"""Writes docs/onnx.md: which of the onnx package's node tests pass, by operator.

python -m tools.onnx_table
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
from tabulate import tabulate

from graphmem.sources.onnx.registry import rules
from tests.sources.onnx.backend import cases, run_case
from tests.sources.onnx.not_passed import NOT_PASSED

DOCS = Path(__file__).resolve().parent.parent / "docs" / "onnx.md"


def domains() -> str:
    """The operators that have a rule, by domain."""
    names: dict[str, list[str]] = {}
    for domain, op in sorted(rules()):
        names.setdefault(domain or "ai.onnx", []).append(op)
    return "\n\n".join(
        f"**{domain}** ({len(ops)}): {', '.join(ops)}" for domain, ops in sorted(names.items())
    )


def main() -> None:
    """Run all cases and write the file."""
    failed = {name for name, case in cases().items() if run_case(case) is not None}
    total, passed = Counter[str](), Counter[str]()
    for name, case in cases().items():
        for op in {f"{n.domain}.{n.op_type}".lstrip(".") for n in case.model.graph.node}:
            total[op] += 1
            passed[op] += name not in failed
    short = [(op, f"{passed[op]} of {total[op]}") for op in sorted(total) if passed[op] < total[op]]
    reasons = [(name, NOT_PASSED.get(name, "?")) for name in sorted(failed)]
    text = f"""# ONNX operators

Made by `python -m tools.onnx_table` with onnx {onnx.__version__}; not typed.

Of the onnx package's {len(cases())} node tests {len(cases()) - len(failed)} compute the expected
outputs. The others:

{tabulate(reasons, ["case", "why"], tablefmt="github")}

Operators in these cases, and how many of their cases pass:

{tabulate(short, ["operator", "pass"], tablefmt="github")}

## Operators with a rule

{domains()}
"""
    DOCS.parent.mkdir(exist_ok=True)
    DOCS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
