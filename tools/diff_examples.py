"""Writes docs/examples/diff_*.md: what graphmem diff says of two pull requests.

python -m tools.diff_examples          needs the extras hf and vision
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.readme import output_of

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "examples"


@dataclass(frozen=True, slots=True)
class Example:
    """A pull request: what it does, and the command lines before and after it.

    ``before`` makes the file ``base.json``, which ``after`` names.
    """

    title: str
    text: str
    before: str
    after: str


LLAMA = "hf:models/llama3_1b.json --batch 1"
ON_L4 = "--optimizer adamw8bit --checkpoint 'model.layers.*' --device L4"

EXAMPLES = {
    "diff_resnet50": Example(
        title="A pull request that changes one layer of a ResNet-50",
        text="The first convolution keeps every pixel: stride 1 in the place of 2.",
        before="models/resnet.py:resnet50 --device T4",
        after="models/resnet.py:resnet50_fine --device T4",
    ),
    "diff_llama_seq": Example(
        title="A pull request that doubles the sequence of a Llama",
        text="Llama 3.2 1B in bf16, its blocks checkpointed, from 4,096 to 8,192 tokens.",
        before=f"{LLAMA} --seq 4096 {ON_L4}",
        after=f"{LLAMA} --seq 8192 {ON_L4}",
    ),
}


def page(example: Example) -> str:
    """An example as a page: the commands, and the comment as they print it."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base.json"
        output_of(f"analyze {example.before} -o {base}")
        comment = output_of(f"diff {base} {example.after} --format markdown")
    return "\n".join((*_head(example), comment.replace(str(base), "base.json")))


def _head(example: Example) -> Iterator[str]:
    yield f"# {example.title}\n"
    yield f"{example.text} Written by `tools/diff_examples.py`; below is the comment.\n"
    yield "```sh"
    yield f"graphmem analyze {example.before} -o base.json"
    yield f"graphmem diff base.json {example.after} --format markdown"
    yield "```\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, example in EXAMPLES.items():
        (FOLDER / f"{name}.md").write_text(page(example), encoding="utf-8")
