"""Writes docs/textbook.md: what textbooks say of the memory of training, each claim simulated.

python -m tools.textbook            needs the extras hf, timm and vision, and libcudnn
"""

from __future__ import annotations

from pathlib import Path

from tools.claims import peaks, savings, sizes

PAGE = Path(__file__).resolve().parent.parent / "docs" / "textbook.md"
SECTIONS = (*sizes.SECTIONS, *peaks.SECTIONS, *savings.SECTIONS)

_HEAD = """\
# The textbook, checked

Common claims about the memory of training, each of them simulated. What is in the tables is
computed; *holds* is asked of each row by the rule beside the answer. Two steps of training on
CUDA, in fp32 with AdamW on an A100-80GB if nothing else is said, whether it fits there or not; the
peak is what `torch.cuda.max_memory_allocated()` would show. GB are 10^9 bytes, MB 10^6, as
textbooks count.

Written by `tools/textbook.py`.
"""


def page() -> str:
    """The whole page."""
    lines = (line for section in SECTIONS for line in section().lines())
    return "\n".join((_HEAD, *lines)).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
