"""Writes docs/estimate.md: the textbook's formula, and a simulated run beside it.

python -m tools.estimate_page          needs the extra hf
"""

from __future__ import annotations

from pathlib import Path

from tools.readme import output_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "estimate.md"

LEDGER = "--params 7e9 --precision fp16 --optimizer adam --batch 4 --seq 2048"
COMMANDS = {
    "The ledger: LLaMA-7B in FP16": (
        "Temporaries are a share (0.15) of all other terms; a layer keeps so many tensors (3) of\n"
        "batch x seq x hidden.",
        f"estimate {LEDGER} --hidden 4096 --layers 32",
    ),
    "The quick formula: 100 M parameters": (
        "A layer keeps so many bytes, and temporaries are a share of these. Where the sum is said\n"
        "to be about 3 GB, gradients are not in it: parameters 0.4, Adam's two states 0.8, layers\n"
        "1.0 and temporaries 0.8 are 3.0 GB. A gradient for each parameter is another 0.4; it\n"
        "stands beside the states in every step, so it is counted here.",
        "estimate --params 100e6 --optimizer adam --layers 20 --activation-bytes 50MB "
        "--temporary-share 0.8",
    ),
    "The same LLaMA-7B, simulated": (
        "The formula adds the most of every kind as if all were there at once, and has no line\n"
        "for logits and their loss. What a layer keeps is many times what the ledger takes it for.",
        f"estimate hf:models/llama_7b.json {LEDGER} --device A100-80GB",
    ),
}

_HEAD = """\
# The textbook's formula

`graphmem estimate` computes it from numbers alone, which takes no torch, or beside a simulated
run where a model is given. Units are GB of 10^9 bytes, as textbooks count. Written by
`tools/estimate_page.py`.
"""


def section(title: str, text: str, command: str) -> str:
    """A command and what it prints."""
    shown = output_of(command).rstrip("\n")
    return f"\n## {title}\n\n{text}\n\n```sh\ngraphmem {command}\n```\n\n```text\n{shown}\n```\n"


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(section(title, *given) for title, given in COMMANDS.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
