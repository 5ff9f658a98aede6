"""Writes docs/parallel.md: one rank of trainings on 1, 2, 8 and 64 GPUs.

python tools/parallel.py            needs the extra hf
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphmem.analysis import traced_call
from graphmem.report import Report
from graphmem.resolve import make_options
from graphmem.sources import InputRequest, load_subject

PAGE = Path(__file__).resolve().parent.parent / "docs" / "parallel.md"
RANKS = (1, 2, 8, 64)
_GIB = 1 << 30
_SHOWN = ("parameters", "gradients", "optimizer_states", "saved_for_backward", "temporaries")
_TP = "`--tp`, the model's own plan"


@dataclass(frozen=True, slots=True)
class Training:
    """A model, how each rank is run, and other ways to spread it beside those of all.

    ``most`` has the most ranks of a way that can't have all.
    """

    title: str
    subject: str
    batch: int
    seq: int
    run: Mapping[str, Any]
    others: Mapping[str, Mapping[str, Any]]
    most: Mapping[str, int] = field(default_factory=dict)


TRAININGS = (
    Training(
        title="GPT-2, 8 x 1,024 tokens a rank, fp32",
        subject="hf:models/gpt2.json",
        batch=8,
        seq=1024,
        run={"precision": "fp32"},
        others={},
    ),
    Training(
        title="Llama-3-8B, 1 x 2,048 tokens a rank, bf16",
        subject="hf:models/llama3_8b.json",
        batch=1,
        seq=2048,
        run={"precision": "bf16"},
        others={
            "`--zero 3`, fp32 parameters, `--fsdp-param-dtype bfloat16`": {
                "precision": "fp32",
                "zero": 3,
                "fsdp_param_dtype": "bfloat16",
                "fsdp_reduce_dtype": "float32",
            },
            _TP: {"precision": "bf16", "tp": True},
        },
        most={_TP: 8},  # key-value heads
    ),
)

WAYS: Mapping[str, Mapping[str, Any]] = {
    "`--zero 0`, DistributedDataParallel": {"zero": 0},
    "`--zero 0 --bucket-view`": {"zero": 0, "bucket_view": True},
    "`--zero 1 --bucket-view`": {"zero": 1, "bucket_view": True},
    "`--zero 2`": {"zero": 2},
    "`--zero 3`, FSDP2": {"zero": 3},
    "`--zero 3 --no-fsdp-reshard`": {"zero": 3, "fsdp_reshard": False},
}


def ways(training: Training) -> Iterator[tuple[str, dict[str, Any]]]:
    """What spreads the training over ranks: its name and options."""
    yield from ((name, {**training.run, **options}) for name, options in WAYS.items())
    yield from ((name, dict(options)) for name, options in training.others.items())


def simulated(subject: str, batch: int, seq: int | None, **options: Any) -> Report:
    """One rank's report, of two steps with AdamW for CUDA."""
    loaded = load_subject(subject, InputRequest(batch=batch, seq=seq, labels=True))
    call = (loaded.args, loaded.kwargs)
    report, _ = traced_call(loaded.model, call, make_options(**options))
    return report


def peaks_line(name: str, reports: Mapping[int, Report]) -> str:
    """A row of the first table: the peak for each number of ranks."""
    peaks = {ranks: report.peak.allocated_bytes / _GIB for ranks, report in reports.items()}
    cells = (f"{peaks[ranks]:,.2f}" if ranks in peaks else "-" for ranks in RANKS)
    return f"| {name} | {' | '.join(cells)} |\n"


def parts_line(name: str, report: Report) -> str:
    """A row of the second table: what is live at the peak, by category."""
    cells = [f"{report.breakdown[category] / _GIB:,.2f}" for category in _SHOWN]
    return f"| {name} | {' | '.join(cells)} | {report.peak.phase} |\n"


def section(training: Training) -> str:
    """The tables of one training."""
    rows = {
        name: {
            ranks: simulated(training.subject, training.batch, training.seq, ranks=ranks, **options)
            for ranks in RANKS
            if ranks <= training.most.get(name, ranks)
        }
        for name, options in ways(training)
    }
    columns = " | ".join(f"{n} rank{'s' if n > 1 else ''}" for n in RANKS)
    parts = " | ".join(category.replace("_", " ") for category in _SHOWN)
    return "".join(
        (
            f"## {training.title}\n\nThe peak of a rank, GiB allocated:\n\n",
            f"| | {columns} |\n|---|{'--:|' * len(RANKS)}\n",
            *(peaks_line(name, found) for name, found in rows.items()),
            "\nWhat is live then with 8 ranks, GiB:\n\n",
            f"| | {parts} | peak in |\n|---|{'--:|' * len(_SHOWN)}---|\n",
            *(parts_line(name, found[8]) for name, found in rows.items()),
            "\n",
        )
    )


_HEAD = """\
# One rank of several

`--ranks N` with `--zero 0|1|2|3`, `--ddp`, `--fsdp` or `--tp` simulates one of N GPUs that train
one model, the one that holds the most. Two steps with AdamW, CUDA; the options beside each row are
those of `graphmem analyze`. Written by `tools/parallel.py`.

"""

_TAIL = """\
## What is run

- **`--zero 0`, `--ddp`**: torch's DistributedDataParallel, which makes its own buckets: as large
  as all gradients, unless `--bucket-view` makes the gradients views of them. The buckets stay
  from step to step, and count as gradients.
- **`--zero 1`**: DistributedDataParallel with torch's ZeroRedundancyOptimizer, which gives each
  tensor to one rank. So the states do not go below those of the largest tensor, an embedding.
- **`--zero 2`**: the loop of DeepSpeed's stage 2 with its default settings (see
  `graphmem/trace/parallel/stage2.py`): parameters on one flat tensor, an fp32 copy of the rank's
  own part also where parameters are fp32, a bucket of 500,000,000 elements in each backward
  (`--zero-bucket`), and gradients of whole tensors that reach into the own part.
- **`--zero 3`, `--fsdp`**: torch's `fully_shard` on each item of the model's ModuleLists and on
  the root, or on what `--fsdp-units` names. Parameters that are gathered, and the buffers of
  collectives, are temporaries. The root stays gathered from forward to backward;
  `--no-fsdp-reshard` keeps all units so. `--fsdp-param-dtype` and `--fsdp-reduce-dtype` are
  those of its MixedPrecisionPolicy.
- **`--tp`**: torch's `parallelize_module` with the styles of `--tp-plan`, by default those of a
  transformers model's own plan. Ranks are the GPUs that share each product; what no module of the
  plan divides is whole on all of them. There are no more ranks than key-value heads.

All of them run in the trace under torch's "fake" process group, on tensors without memory;
`graphmem verify --target cpu` runs the same under the same group for real. The tests compare the
two, and FSDP2 also with a loop of its own, byte for byte.

What is not in these numbers: the buffers of NCCL, which are outside of PyTorch's allocator.
"""


def main() -> None:
    """Simulate all, and write the page."""
    PAGE.write_text(_HEAD + "".join(map(section, TRAININGS)) + _TAIL, "utf-8")


if __name__ == "__main__":
    main()
