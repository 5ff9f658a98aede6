"""How long 64 batch sizes of a model take beside one analysis of it.

    python tools/bench_sweep.py [SUBJECT] [--sizes 64] [--repeat 3]

Both run as a user starts them, each in a process of its own, nothing from a cache. It fails if
the sweep takes more than twice the CPU seconds of the analysis (the smallest of the repeats).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

MOST = 2.0


def cpu_seconds(*arguments: str) -> float:
    """Of one call of graphmem, its children included."""
    command = [sys.executable, "-m", "graphmem", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command[1:])}: {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subject", nargs="?", default="torchvision:resnet50")
    parser.add_argument("--sizes", type=int, default=64, metavar="N")
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    asked = parser.parse_args(argv)
    one, many = (
        min(cpu_seconds(*call) for _ in range(asked.repeat))
        for call in (
            ("analyze", asked.subject, "--batch", str(asked.sizes)),
            ("sweep", asked.subject, "--batch", f"1:{asked.sizes}", "--jobs", "1", "--no-cache"),
        )
    )
    print(f"one analysis {one:.2f} s, {asked.sizes} sizes {many:.2f} s of CPU: {many / one:.2f}")
    return int(many > MOST * one)


if __name__ == "__main__":
    sys.exit(main())
