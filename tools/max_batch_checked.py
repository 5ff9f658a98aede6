"""``graphmem max-batch`` beside a search that traces every size, of three models on four GPUs.

Every size is traced, from 1 to the first whose live tensors alone are more than there is (with
``--around N`` only the N sizes below the answer and those above it): the largest that fits has
to be the answer, which may take five traces.

    python tools/max_batch_checked.py            needs the extras hf, timm and vision
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphmem.instantiate import Recorded, record_subject
from graphmem.largest import Memory, largest, requests
from graphmem.largest.memory import least_bytes
from graphmem.resolve import make_options
from graphmem.sources import InputRequest

SUBJECTS = {
    "ResNet-50": ("torchvision:resnet50", None),
    "ViT-B": ("timm:vit_base_patch16_224", None),
    "GPT-2": ("hf:models/gpt2.json", 1024),
}
GPUS = ("T4", "L4", "A100-40GB", "H100")
MOST_TRACES = 5
HEAD = (
    "| model | GPU | largest batch | traces | seconds | by tracing each | does not fit below "
    "| sizes traced | seconds | equal |\n|---|---|--:|--:|--:|--:|---|--:|--:|---|"
)


@dataclass(frozen=True, slots=True)
class Forced:
    """The largest batch that fits by tracing each, and the smaller ones that do not."""

    size: int
    not_below: tuple[int, ...]
    traced: int


def by_force(trace: Callable[[int], Recorded], memory: Memory, lowest: int) -> Forced:
    """Trace every size from the lowest on, until the live tensors alone are too much."""
    fits: dict[int, bool] = {}
    size = lowest
    while True:
        schedule = trace(size).schedule
        if least_bytes(schedule) > memory.allowed_bytes:
            break
        fits[size] = memory.fit(schedule).fits
        gc.collect()
        size += 1
    best = max((n for n, does in fits.items() if does), default=0)
    return Forced(
        best, tuple(n for n, does in fits.items() if not does and n < best), len(fits) + 1
    )


def row(model: str, gpu: str, around: int | None) -> str:
    """One line of the table."""
    subject, seq = SUBJECTS[model]
    options = make_options(device=gpu)
    sized = requests(subject, InputRequest(seq=seq, labels=True), "batch")

    def trace(size: int) -> Recorded:
        return record_subject(subject, sized(size), options)

    memory = Memory(options)
    start = time.perf_counter()
    answer = largest(subject, trace, memory)
    middle = time.perf_counter()
    forced = by_force(trace, memory, 1 if around is None else max(1, answer.size - around))
    end = time.perf_counter()
    equal = forced.size == answer.size and len(answer.traced) <= MOST_TRACES
    cells = (
        *(model, gpu, answer.size, len(answer.traced), f"{middle - start:.1f}", forced.size),
        *(", ".join(map(str, forced.not_below)) or "none", forced.traced, f"{end - middle:.0f}"),
        "yes" if equal else "NO",
    )
    return f"| {' | '.join(map(str, cells))} |"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="*", default=list(SUBJECTS), choices=SUBJECTS)
    parser.add_argument("--gpu", nargs="*", default=list(GPUS))
    parser.add_argument("--around", type=int, metavar="N", help="not below N under the answer")
    arguments = parser.parse_args(argv)
    print(HEAD, flush=True)
    for model in arguments.model:
        for gpu in arguments.gpu:
            print(row(model, gpu, arguments.around), flush=True)


if __name__ == "__main__":
    main()
