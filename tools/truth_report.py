"""Predictions beside what others measured on real GPUs (``../shared/truth``).

Every row of ``measured.csv`` that can be built and every snapshot with a known model is
predicted from scratch, in a process for each family; others are skipped with a reason. The
README's table between ``<!-- truth -->`` and ``<!-- /truth -->`` is the summary.

    python tools/truth_report.py                       all of it, with the summary
    python tools/truth_report.py --only liger xmem     two families
    python tools/truth_report.py --format markdown -o truth.md
    python tools/truth_report.py --readme              also fills the README's table
    python tools/truth_report.py --page                also writes docs/truth.md, of techniques
    python tools/truth_report.py --read truth.json     what --format json wrote, predicted before

Needs the extras hf, timm and vision, and peft.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # tools and models are no installed packages

from tools.truth import printing, techniques  # noqa: E402
from tools.truth.outcome import Family, Outcome  # noqa: E402
from tools.truth.rows import TRUTH, read  # noqa: E402

FAMILIES = (
    "peft",
    "litgpt",
    "gpumemnet",
    "snapshots",
    "decoders",
    "torchtune",
    "attention",
    "liger",
    "preflight",
    "xmem",
    "others",
)
"""The modules of ``tools/truth``, the longest first."""

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "truth.md"
TABLE = re.compile(r"(<!-- truth -->\n).*?(<!-- /truth -->)", re.DOTALL)


def family(name: str) -> Family:
    """The module of a family."""
    return cast(Family, importlib.import_module(f"tools.truth.{name}"))


def predict(name: str) -> Iterator[Outcome]:
    """The outcomes of one family, in this process."""
    module = family(name)
    return module.outcomes([row for row in read() if module.takes(row)])


def predict_apart(name: str) -> list[Outcome]:
    """The outcomes of one family, in a process of its own.

    Raises:
        RuntimeError: if it fails, with its last line.
    """
    command = [sys.executable, __file__, "--only", name, "--here", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"{name}: {last}")
    print(f"{name}: done", file=sys.stderr)
    return [Outcome.from_dict(values) for values in json.loads(done.stdout)["rows"]]


def all_outcomes(names: Sequence[str], jobs: int) -> printing.Families:
    """The bars and outcomes of families, predicted by ``jobs`` processes at once.

    One that fails has a line on stderr, and no outcomes.
    """

    def outcomes(name: str) -> list[Outcome] | None:
        try:
            return predict_apart(name)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return None

    with ThreadPoolExecutor(jobs) as pool:
        found = dict(zip(names, pool.map(outcomes, names), strict=True))
    return {name: (family(name).BARS, own) for name, own in sorted(found.items()) if own}


def read_outcomes(paths: Sequence[Path]) -> printing.Families:
    """The bars and outcomes of what ``as_json`` wrote."""
    found: dict[str, list[Outcome]] = {}
    for path in paths:
        for values in json.loads(path.read_text("utf-8"))["rows"]:
            found.setdefault(values["family"], []).append(Outcome.from_dict(values))
    return {name: (family(name).BARS, found[name]) for name in sorted(found)}


def rendered(families: printing.Families, kind: str) -> str:
    """All rows, what was skipped, and the summary."""
    outcomes = [o for _, own in families.values() for o in own]
    if kind == "json":
        return as_json(outcomes)
    parts = [printing.rows(outcomes, kind), printing.skipped(outcomes, kind)]
    return "\n\n".join([*parts, printing.summary(families, kind)]) + "\n"


def as_json(outcomes: Iterable[Outcome]) -> str:
    """The rows with their errors, as JSON."""
    rows = [o.to_dict() for o in outcomes]
    return json.dumps({"rows": rows}, indent=1) + "\n"


def fill_readme(families: printing.Families) -> None:
    """Write the summary into the README."""
    table = printing.summary(families, "markdown")
    text = README.read_text("utf-8")
    README.write_text(TABLE.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text), "utf-8")


def _arguments(argv: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=FAMILIES, nargs="+", help="these families of rows")
    parser.add_argument("--format", choices=("table", "markdown", "json"), default="table")
    parser.add_argument("-o", "--output", type=Path, help="a file in place of stdout")
    parser.add_argument("--jobs", type=int, default=2, help="families at one time")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE.json", help="earlier results")
    parser.add_argument("--readme", action="store_true", help="fill the README's table")
    parser.add_argument("--page", action="store_true", help="write docs/truth.md")
    parser.add_argument("--here", action="store_true", help="in this process, with --only")
    return parser.parse_args(argv)


def _found(arguments: Any) -> printing.Families:
    names = arguments.only or list(FAMILIES)
    if arguments.read:
        return read_outcomes(arguments.read)
    if arguments.here:
        return {name: (family(name).BARS, [*predict(name)]) for name in names}
    return all_outcomes(names, arguments.jobs)


def main(argv: Sequence[str] | None = None) -> int:
    """Predict and print; 1 where a family failed, 2 where the measurements are absent."""
    arguments = _arguments(argv)
    if not TRUTH.is_dir() and not arguments.read:
        print(f"{TRUTH}: no measurements here", file=sys.stderr)
        return 2
    found = _found(arguments)
    text = rendered(found, arguments.format)
    if arguments.output:
        arguments.output.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    if arguments.readme:
        fill_readme(found)
    if arguments.page:
        PAGE.write_text(techniques.page(found), "utf-8")
    return int(not arguments.read and set(found) != set(arguments.only or FAMILIES))


if __name__ == "__main__":
    sys.exit(main())
