"""Fills the outputs and tables of README.md, so that none of them is typed.

Between ``<!-- output: COMMAND -->`` and ``<!-- /output -->`` stands what the command
prints, its beginning; between ``<!-- table: how exact -->`` and ``<!-- /table -->`` the
verification of each subject of ``EXACT``.

    python tools/readme.py            needs the extras hf, timm and vision
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

from graphmem.cli import main as graphmem

README = Path(__file__).resolve().parent.parent / "README.md"
LINES = 48

EXACT = {
    "GPT-2, 4 layers, 2 x 256 tokens, AdamW": "models/gpt2.py:gpt2_4_layers --no-foreach",
    "BERT-base, 2 layers, with a mask": "models/bert.py:bert_2_layers",
    "ViT-Small": "models/vit.py:vit_small",
    "residual MLP": "models/mlp.py:residual_mlp",
    "residual MLP, 4 micro-batches": "models/mlp.py:residual_mlp --accumulate 4",
    "residual MLP, bf16 autocast": "models/mlp.py:residual_mlp --precision amp-bf16",
    "language model with a tied head": "models/tied_lm.py:tied_lm",
    "checkpointed MLPs, reentrant": "models/checkpointed.py:reentrant",
    "checkpointed MLPs, not reentrant": "models/checkpointed.py:not_reentrant",
    "ResNet-18 (oneDNN's scratch)": "models/resnet.py:resnet18",
    "LSTM language model (oneDNN's scratch)": "models/lstm.py:lstm",
}


def output_of(arguments: str) -> str:
    """What a command line prints on stdout."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        graphmem(shlex.split(arguments))
    return out.getvalue()


def shortened(match: re.Match[str]) -> str:
    """A command's marker with the beginning of its output."""
    lines = output_of(match["command"].removeprefix("graphmem ")).splitlines()[:LINES]
    text = "\n".join([*lines, "..."])
    return f"<!-- output: {match['command']} -->\n```text\n{text}\n```\n<!-- /output -->"


def exactness(match: re.Match[str]) -> str:
    """The table of predicted and measured peaks."""
    rows = ["| training step, two of them | predicted | measured | difference | unexplained |"]
    rows.append("|---|--:|--:|--:|--:|")
    for name, arguments in EXACT.items():
        result = json.loads(output_of(f"verify {arguments} --format json"))
        numbers = (
            result["predicted"]["peak_bytes"],
            result["measured"]["peak_bytes"],
            result["difference"]["peak_bytes"],
            result["difference"]["unexplained_bytes"],
        )
        rows.append(f"| {name} | " + " | ".join(f"{n:,}" for n in numbers) + " |")
    text = "\n".join(rows)
    return f"<!-- table: how exact -->\n{text}\n<!-- /table -->"


def main() -> None:
    """Rewrite README.md."""
    text = README.read_text("utf-8")
    command = re.compile(r"<!-- output: (?P<command>.+?) -->.*?<!-- /output -->", re.DOTALL)
    table = re.compile(r"<!-- table: how exact -->.*?<!-- /table -->", re.DOTALL)
    README.write_text(table.sub(exactness, command.sub(shortened, text)), "utf-8")


if __name__ == "__main__":
    main()
