"""The comment on a pull request: what it does to each model, the largest change first.

    python comment.py BASE HEAD

BASE and HEAD are folders with the reports of the same models before and after, as ``graphmem
check --update-baseline`` writes them. The text is of at most 60 kB: where the tables of all
models are longer, the smallest changes keep their sentence alone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from graphmem.as_text import format_bytes
from graphmem.diffs import compare, read_file
from graphmem.render.diff_markdown import MOST_BYTES, as_markdown
from graphmem.render.markdown import code, plain

MARK = "<!-- graphmem: what this pull request does to GPU memory -->"
"""The first line, by which an older comment is found again."""


@dataclass(frozen=True, slots=True)
class Part:
    """What there is to say of a model; ``change`` in bytes decides its place."""

    line: str
    details: str
    change: int


def comment(base: Path, head: Path) -> str:
    """The text on all models that are in one of the folders."""
    names = sorted({path.stem for folder in (base, head) for path in folder.glob("*.json")})
    parts = sorted((part(base, head, name) for name in names), key=lambda p: -p.change)
    changed = sum(part.change > 0 for part in parts)
    title = f"GPU memory: {changed} of {len(parts)} models changed" if parts else "No models"
    return fitted(f"{MARK}\n### {title}\n", parts)


def fitted(heading: str, parts: list[Part]) -> str:
    """The heading and the parts, with as many of their details as there is room for."""
    for count in range(len(parts), -1, -1):
        texts = [
            f"{p.line}\n{_folded(p.details)}" if i < count else p.line for i, p in enumerate(parts)
        ]
        text = "\n".join([heading, *texts]) + "\n"
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def part(base: Path, head: Path, name: str) -> Part:
    """What became of a model."""
    before, after = base / f"{name}.json", head / f"{name}.json"
    if not after.exists():
        return Part(f"- {code(name)}: gone, or can't be analyzed any more", "", 1)
    report = read_file(after)
    if not before.exists():
        peak = format_bytes(report.peak.allocated_bytes)
        return Part(f"- {code(name)}: new, peak {peak}", "", report.peak.allocated_bytes)
    diff = compare(read_file(before), report, ("before", "after"))
    change = abs(diff.allocated.change or 0)
    return Part(f"- {code(name)}: {plain(diff.summary)}", as_markdown(diff), change)


def _folded(details: str) -> str:
    if not details:
        return ""
    return f"\n<details><summary>Details</summary>\n\n{details}\n</details>\n"


if __name__ == "__main__":
    sys.stdout.write(comment(Path(sys.argv[1]), Path(sys.argv[2])))
