"""Fills the outputs in the pages of the guide, so that none of them is typed.

Between ``<!-- output N: COMMAND -->`` and ``<!-- /output -->`` stand the first N lines that the
command prints at 80 columns.

    python tools/guide.py [PAGE...]        needs the extra hf
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # tools is no installed package

from tools.readme import output_of  # noqa: E402

GUIDE = ROOT / "docs/guide"
_OUTPUT = re.compile(
    r"<!-- output (?P<lines>\d+): graphmem (?P<command>[^\n]+?) -->\n.*?<!-- /output -->", re.DOTALL
)
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def filled(text: str) -> str:
    """A page with its outputs made again."""
    os.environ["COLUMNS"] = "80"
    return _OUTPUT.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    lines = output_of(match["command"]).splitlines()
    most = int(match["lines"])
    cut = ["..."] if len(lines) > most else []
    text = "\n".join([*lines[:most], *cut])
    marker = match[0].split("\n", 1)[0]
    return f"{marker}\n```text\n{text}\n```\n<!-- /output -->"


def commands(text: str) -> Iterator[str]:
    """The command lines of a page's shell blocks, without the program's name."""
    for block in _SHELL.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("graphmem "):
                yield line.removeprefix("graphmem ")


def main(argv: Sequence[str]) -> None:
    """Rewrite pages, all by default."""
    for page in [Path(name) for name in argv] or sorted(GUIDE.glob("*.md")):
        page.write_text(filled(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
