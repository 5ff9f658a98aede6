"""Predictions of ONNX Runtime's arena beside its profile, for many files.

    python tools/ort_sweep.py FOLDER [--default-dim 64] [--no-ort-optimize]

FOLDER holds .onnx files, or wheels that do (``pip download --no-deps silero-vad==6.2.3 ...``);
the light models of the onnx package are always among them. Each file is simulated and run in a
process of its own; sizes that a file needs otherwise stand in ``SIZES``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import onnx
from tabulate import tabulate

SIZES: dict[str, tuple[str, ...]] = {
    "silero_vad": (
        *("--input", "input=1x576", "--input", "state=2x1x128", "--input", "sr=:int64=16000"),
    ),
    "silero_vad_16k_op15": ("--dim", "batch=1", "--dim", "sequence=576", "--default-dim", "1"),
    "silero_vad_half": ("--dim", "batch=1", "--dim", "sequence=576"),
    "silero_vad_op18_ifless": (
        *("--dim", "batch=1", "--dim", "sequence=576", "--input", "sr=:int64=16000"),
    ),
    "model": ("--default-dim", "2"),  # magika
    "nmp": ("--default-dim", "1"),  # basic-pitch
}
"""Arguments of files that don't take every size, by their names without ``.onnx``."""

_PEAKS = ("requested_peak_bytes", "in_use_peak_bytes", "arena_bytes")


def main() -> int:
    """Print a table; 0 if nine of ten files are within 1 % on both runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--default-dim", default="64")
    parser.add_argument("--no-ort-optimize", action="store_true")
    parser.add_argument("--only", help="part of the names of the files to take")
    arguments = parser.parse_args()
    rows, close = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        files = [
            f
            for f in model_files([arguments.folder], Path(scratch))
            if not arguments.only or arguments.only in f.name
        ]
        for file in files:
            found = _verified(file, arguments)
            rows += _rows(file.stem, found)
            close += isinstance(found, dict) and worst_difference(found) <= 0.01
    headers = ("file", "run", "requested", "measured", "in use", "measured", "held", "measured")
    print(tabulate(rows, headers, disable_numparse=True, colalign=("left", "left")))
    print(f"{close} of {len(files)} files within 1 % on the first and later runs")
    return 0 if close >= 0.9 * len(files) else 1


def model_files(folders: Sequence[Path], scratch: Path) -> list[Path]:
    """The .onnx files below the folders, those of wheels and the onnx package's light models.

    Args:
        folders: where to look.
        scratch: an empty folder for what the wheels hold.
    """
    for wheel in (wheel for folder in folders for wheel in folder.rglob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.endswith(".onnx")]
            archive.extractall(scratch / wheel.name, names)
    light = Path(onnx.__file__).parent / "backend/test/data/light"
    found = [f for root in (*folders, scratch, light) for f in root.rglob("*.onnx")]
    return sorted(found, key=lambda file: file.name)


def _verified(
    file: Path, arguments: argparse.Namespace
) -> dict[str, dict[str, dict[str, int]]] | str:
    """The JSON of ``graphmem verify``, or the line that says why there is none."""
    sizes = SIZES.get(file.stem, ("--default-dim", arguments.default_dim))
    optimize = ["--no-ort-optimize"] if arguments.no_ort_optimize else []
    command = [sys.executable, "-m", "graphmem", "verify", str(file), "--format", "json"]
    done = subprocess.run(
        [*command, "--target", "onnxruntime", *sizes, *optimize], capture_output=True, text=True
    )
    if not done.stdout:
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    found: dict[str, dict[str, dict[str, int]]] = json.loads(done.stdout)
    return found


def _rows(name: str, found: dict[str, dict[str, dict[str, int]]] | str) -> list[tuple[str, ...]]:
    if isinstance(found, str):
        return [(name, found[:100])]
    rows = []
    for run in ("first_run", "later_runs"):
        cells = [
            f"{found[side][run][peak]:,}" for peak in _PEAKS for side in ("predicted", "measured")
        ]
        rows.append((name if run == "first_run" else "", run, *cells))
    return rows


def worst_difference(found: dict[str, dict[str, dict[str, int]]]) -> float:
    """The largest difference of a peak, as a share of the measured one, of both runs."""
    return max(
        abs(found["difference"][run][peak]) / max(found["measured"][run][peak], 1)
        for run in ("first_run", "later_runs")
        for peak in _PEAKS[:2]
    )


if __name__ == "__main__":
    sys.exit(main())
