"""Fills the outputs and tables of README.md, so that none of them is typed.

Between ``<!-- output: COMMAND -->`` and ``<!-- /output -->`` stands what the command
prints, its beginning; between ``<!-- table: how exact -->`` and ``<!-- /table -->`` the
verification of each subject of ``EXACT``; between ``<!-- table: the zoo -->`` and
``<!-- /table -->`` what docs/zoo.md counts. Between ``<!-- picture: COMMAND -->`` and
``<!-- /picture -->`` stands the picture that the command writes, ``-o docs/images/NAME.svg``.

    python tools/readme.py            needs the extras hf, timm and vision
    python tools/readme.py --only zoo
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # tools is no installed package

from graphmem.cli import main as graphmem  # noqa: E402
from tools.sweeping.summary import shares  # noqa: E402

README = ROOT / "README.md"
ZOO = ROOT / "docs/zoo.md"
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


def picture(match: re.Match[str]) -> str:
    """A command's marker with the picture that it writes, described in the picture's words."""
    command = match["command"]
    path = command.rpartition(" -o ")[2]
    output_of(command.removeprefix("graphmem "))
    described = ElementTree.parse(ROOT / path).findtext("{http://www.w3.org/2000/svg}title")
    return f"<!-- picture: {command} -->\n![{described}]({path})\n<!-- /picture -->"


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


def zoo(match: re.Match[str]) -> str:
    """The models of other people's libraries that are analyzed, as the page counts them."""
    return f"<!-- table: the zoo -->\n{shares(ZOO.read_text('utf-8'))}\n<!-- /table -->"


PARTS: dict[str, tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = {
    name: (re.compile(rf"<!-- {opens} -->.*?<!-- /{closes} -->", re.DOTALL), fill)
    for name, opens, closes, fill in (
        ("outputs", "output: (?P<command>[^\n]+?)", "output", shortened),
        ("pictures", "picture: (?P<command>[^\n]+?)", "picture", picture),
        ("exact", "table: how exact", "table", exactness),
        ("zoo", "table: the zoo", "table", zoo),
    )
}
"""Each part with what stands in the README for it, and what is put there."""


def filled(text: str, parts: Sequence[str]) -> str:
    """The README with some of its parts made again, and the rest as it is."""
    for name in parts:
        pattern, fill = PARTS[name]
        text = pattern.sub(fill, text)
    return text


def main(argv: Sequence[str] | None = None) -> None:
    """Rewrite README.md."""
    parser = argparse.ArgumentParser(description="Fills the outputs and tables of README.md.")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments = parser.parse_args(argv)
    README.write_text(filled(README.read_text("utf-8"), arguments.only), "utf-8")


if __name__ == "__main__":
    main()
