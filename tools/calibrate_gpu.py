"""Measures a GPU: scratch of operators, and whole steps of models in fresh processes.

On a machine with a GPU, in at most ``--minutes``; what is done so far is kept, also when a
case fails or time is up. The file names GPU, driver and versions; rules and tests read it:
a file in ``tests/calibration`` is compared with the predictions of the same steps.

    python tools/calibrate_gpu.py                      writes GPU-TORCH.json
    python tools/calibrate_gpu.py --only attention     one group
    python tools/calibrate_gpu.py --dry-run H100-80GB  predicts the same cases, without a GPU
    python tools/calibrate_gpu.py --compare FILE.json  predictions beside a file

Measuring needs torch alone, and for some models torchvision, timm and transformers; a case
whose library is missing says so. Predicting needs graphmem.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # tools and models are no installed packages

SCHEMA = "graphmem.calibration/1"
TOGETHER = 4
"""Processes at one time: peaks of the allocator are each process's own."""

Result = dict[str, Any]


def all_cases() -> Mapping[str, Any]:
    """Every case by name."""
    from tools.calibration import operators, whole
    from tools.calibration.case import cases

    assert operators
    assert whole
    return cases()


def groups(only: str | None) -> dict[str, list[str]]:
    """The cases of each process, whole models first."""
    found: dict[str, list[str]] = {}
    for case in all_cases().values():
        if only is None or only in (case.group, case.name):
            found.setdefault(case.group, []).append(case.name)
    return dict(sorted(found.items(), key=lambda item: len(item[1])))


# -- a process that runs some cases


def run_here(names: Sequence[str], result_of: Callable[[Any], Result]) -> None:
    """Run cases one after another, and write a line of JSON for each."""
    cases = all_cases()
    for name in names:
        started = time.monotonic()
        try:
            result = result_of(cases[name])
        except Exception as error:  # a case that fails is a result, too
            text = " ".join(str(error).split())[:300]
            result = {"error": f"{type(error).__name__}: {text}"}
        seconds = round(time.monotonic() - started, 1)
        print(json.dumps({"case": name, "seconds": seconds, **result}), flush=True)


def predicted(gpu: str) -> Callable[[Any], Result]:
    """From a case to its predicted steps on a GPU."""
    import graphmem

    def predict(case: Any) -> Result:
        if case.measured_only:
            return {"skipped": case.measured_only}
        report = graphmem.record(case.make("meta"), steps=case.steps, device=gpu)
        keys = ("allocated_bytes", "reserved_bytes")
        return {"steps": [{key: getattr(step, key) for key in keys} for step in report.steps]}

    return predict


# -- the process that starts the others


def collect(names: Sequence[str], arguments: Sequence[str], until: float) -> Iterator[Result]:
    """The results of cases that run in a process of their own.

    If the process dies, the case that it was at has an error, and the others are started
    again; what is not done by ``until`` (``time.monotonic``) is left out.
    """
    left = list(names)
    while left and time.monotonic() < until:
        command = [sys.executable, __file__, *arguments, "--here", json.dumps(left)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=until - time.monotonic()
            )
            output, ending = done.stdout, done.stderr.strip().rpartition("\n")[2]
        except subprocess.TimeoutExpired as expired:
            raw = expired.stdout or b""
            output, ending = raw.decode() if isinstance(raw, bytes) else raw, None
        for line in output.splitlines():
            if line.startswith("{"):
                result = json.loads(line)
                left.remove(result["case"])
                yield result
        if ending is None:
            return
        if left:
            yield {"case": left.pop(0), "error": f"the process ended: {ending[:300]}"}


def gather(
    only: str | None, minutes: float, arguments: Sequence[str], keep: Callable[[Result], None]
) -> None:
    """Run every group in a process, some at a time, and keep each result as it comes."""
    until = time.monotonic() + 60 * minutes

    def one(names: Sequence[str]) -> None:
        for result in collect(names, arguments, until):
            keep(result)
            said = result.get("error") or result.get("skipped") or "done"
            print(f"{result['case']}: {said}", file=sys.stderr)

    with ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(one, groups(only).values()))


def measured_machine() -> Result:
    """What is measured, and the context, by a process that does nothing else."""
    command = [sys.executable, __file__, "--machine"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    found: Result = json.loads(done.stdout.strip().rpartition("\n")[2])
    return {**found, "driver": driver_version()}


def driver_version() -> str:
    """What nvidia-smi says; nothing where it is not installed."""
    if shutil.which("nvidia-smi") is None:
        return ""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True).stdout.split()
    return lines[0] if lines else ""


def default_output(machine: Mapping[str, Any]) -> Path:
    """``nvidia-h200-2.13.0.json``."""
    gpu = re.sub(r"[^a-z0-9]+", "-", machine["gpu"].lower()).strip("-")
    return Path(f"{gpu}-{machine['torch'].partition('+')[0]}.json")


# -- a file beside predictions


def compare(measured: Mapping[str, Any], gpu: str) -> Iterator[tuple[str, int, int]]:
    """For each case of a file: its name, and the largest predicted and measured step.

    Both are allocated bytes.
    """
    predict, cases = predicted(gpu), all_cases()
    for name, result in measured["cases"].items():
        if "steps" in result and name in cases and not cases[name].measured_only:
            steps = predict(cases[name])["steps"]
            yield (
                name,
                max(step["allocated_bytes"] for step in steps),
                max(step["allocated_bytes"] for step in result["steps"]),
            )


def print_comparison(path: Path) -> None:
    """A line for each case of a file."""
    file = json.loads(path.read_text("utf-8"))
    for name, ours, theirs in compare(file, file["machine"]["gpu"]):
        error = 100 * (ours / theirs - 1)
        print(f"{name:44} {ours:>16,} {theirs:>16,} {ours - theirs:>+14,} {error:+8.3f} %")


# -- the command


def _arguments(argv: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=8, help="the most that it takes")
    parser.add_argument("--only", help="one group or case")
    parser.add_argument("--dry-run", metavar="GPU", help="predict for a GPU, without one")
    parser.add_argument("--compare", metavar="FILE", type=Path, help="predict a file's cases")
    parser.add_argument("-o", "--output", type=Path, help="the file to write")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    parser.add_argument("--machine", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure or predict; 2 where there is nothing to measure."""
    arguments = _arguments(argv)
    if arguments.compare:
        print_comparison(arguments.compare)
        return 0
    if arguments.machine:
        from tools.calibration import measure

        found = measure.machine()
        print(json.dumps({**found, "context": measure.context()}))
        return 0
    if arguments.here:
        from tools.calibration import measure

        own = predicted(arguments.dry_run) if arguments.dry_run else measure.measure
        run_here(json.loads(arguments.here), own)
        return 0
    return _all(arguments)


def _all(arguments: Any) -> int:
    if not groups(arguments.only):
        print(f"--only {arguments.only}: no such group or case", file=sys.stderr)
        return 2
    passed_on = ["--dry-run", arguments.dry_run] if arguments.dry_run else []
    try:
        machine = {"gpu": arguments.dry_run} if arguments.dry_run else measured_machine()
    except RuntimeError as error:
        print(f"no GPU to measure: {error}; --dry-run H100-80GB predicts one", file=sys.stderr)
        return 2
    output = arguments.output or (None if arguments.dry_run else default_output(machine))
    found: Result = {"schema": SCHEMA, "machine": machine, "cases": {}}
    writing = threading.Lock()

    def keep(result: Result) -> None:
        with writing:
            found["cases"][result["case"]] = {k: v for k, v in result.items() if k != "case"}
            if output:
                output.write_text(json.dumps(found, indent=1) + "\n", "utf-8")

    gather(arguments.only, arguments.minutes, passed_on, keep)
    if output is None:
        print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
