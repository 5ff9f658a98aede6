"""Checks that two installations give the same report, byte for byte, but for torch's version.

A prediction must not depend on where it is made: with a CPU or a CUDA build of torch, one
supported version or another. Each SUBJECT is what follows ``graphmem analyze``, as one
argument:

    python tools/same_bytes.py a/bin/graphmem b/bin/graphmem 'hf:models/gpt2.json --batch 8'
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

_TORCH = re.compile(r'^  "torch": "[^"]*",$', re.MULTILINE)
_SHOWN = 40


def report(program: str, subject: str) -> str:
    """The JSON report that an installation prints, with torch's version left out.

    Raises:
        SystemExit: the analysis failed, or the report has no version to leave out.
    """
    command = [program, "analyze", *shlex.split(subject), "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}: exit code {done.returncode}")
    text, count = _TORCH.subn("", done.stdout)
    if count != 1:
        raise SystemExit(f"{shlex.join(command)}: {count} lines with torch's version, not one")
    return text


def difference(first: str, second: str) -> list[str]:
    """The first lines of a unified diff; empty if the texts are the same."""
    lines = difflib.unified_diff(first.splitlines(), second.splitlines(), n=1, lineterm="")
    return list(lines)[:_SHOWN]


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the reports on every subject; 1 if any differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("first", help="a graphmem program")
    parser.add_argument("second", help="another one")
    parser.add_argument("subjects", nargs="+", metavar="SUBJECT")
    asked = parser.parse_args(argv)
    differing = 0
    for subject in asked.subjects:
        first, second = (report(program, subject) for program in (asked.first, asked.second))
        lines = difference(first, second)
        differing += first != second
        print(f"{'differs' if first != second else 'same':<8} {len(first):>9,} bytes  {subject}")
        print("\n".join(lines), end="\n" if lines else "")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
