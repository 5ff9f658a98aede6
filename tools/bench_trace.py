"""Times an analysis of Llama-3-8B beside torch's own MemTracker and beside the bare run.

Three ways through the same two training steps (bf16, one sequence of 2,048 tokens, AdamW
with foreach), each in a fresh process and without weights:

- ``bare``: forward, backward and optimizer on meta tensors; nothing is recorded. (There
  attention is the plain one of several operators, on the CPU it is one fused operator.)
- ``graphmem``: from the model to the finished report.
- ``MemTracker``: ``torch.distributed._tools.mem_tracker`` under FakeTensorMode, with fakes
  on the device "cpu".

The times leave out imports and the building of the model on the meta device, and hold
everything after it. A step is zero_grad, forward, loss, backward and optimizer step; the
total has the preparation and the summary too, and stands also in seconds of processor time,
which other programs on the machine change less.

    python tools/bench_trace.py                 the whole model
    python tools/bench_trace.py --layers 4      a quick look
    python tools/bench_trace.py --config models/llama3_405b.json --seq 8192 --layers 8 32 126
                                                growth with layers
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from graphmem.as_text import format_bytes

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

MODELS = Path(__file__).resolve().parent.parent / "models"
STEPS = 2


@dataclass(frozen=True, slots=True)
class Workload:
    """What is run: a configuration, changes to it, and the sizes of the inputs."""

    changes: Mapping[str, int]
    batch: int
    seq: int
    config: str = str(MODELS / "llama3_8b.json")


TINY = Workload(
    {
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    batch=1,
    seq=8,
)
"""Run first in each process, unmeasured: much of torch is imported at its first use."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds and bytes of one process; ``peak_bytes`` is what it predicts."""

    step_seconds: tuple[float, ...]
    total_seconds: float
    cpu_seconds: float
    rss_bytes: int
    peak_bytes: int | None


# -- the workload, the same for all


def built(work: Workload) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model on the meta device and the keyword arguments of a call, on the CPU.

    With the cache that the configuration asks for, as is transformers' default, no branch
    needs the values of a tensor; without it, fake and meta tensors could not go the same way.
    """
    import torch
    import transformers

    values = json.loads(Path(work.config).read_text("utf-8")) | dict(work.changes)
    config = transformers.AutoConfig.for_model(**values)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.train()
    tokens = torch.zeros(work.batch, work.seq, dtype=torch.int64)
    return model, {"input_ids": tokens, "labels": tokens}


def run_steps(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    call: dict[str, Tensor],
    before: Callable[[], None] = lambda: None,
) -> Laps:
    """The steps of the default loop; each one's output lives until the next replaces it."""
    laps = Laps()
    for _ in range(STEPS):
        before()
        with laps.lap():
            optimizer.zero_grad(set_to_none=True)
            output = model(**call)
            output.loss.backward()
            optimizer.step()
    return laps


class Laps:
    """A stopwatch."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Time what runs inside."""
        start = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - start)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer; foreach is PyTorch's default on CUDA."""
    import torch

    return torch.optim.AdamW(model.parameters(), foreach=True)


# -- the three ways; each returns the seconds of the steps and the predicted peak

Outcome = tuple[list[float], int | None]


def bare(model: nn.Module, call: dict[str, Tensor]) -> Outcome:
    """The steps on meta tensors, with nothing that watches."""
    return run_steps(model, adamw(model), moved(call, "meta")).seconds, None


def with_graphmem(model: nn.Module, call: dict[str, Tensor]) -> Outcome:
    """A whole analysis, up to the report."""
    from graphmem.analysis import traced_call
    from graphmem.resolve import make_options
    from graphmem.trace.step import Loop

    laps = Laps()
    step = Loop.step

    def timed(loop: Loop) -> None:
        with laps.lap():
            step(loop)

    options = make_options(target="cuda", optimizer="adamw", foreach=True, steps=STEPS)
    with mock.patch.object(Loop, "step", timed):
        report, _ = traced_call(model, ((), call), options)
    return laps.seconds, report.peak.allocated_bytes


def with_mem_tracker(model: nn.Module, call: dict[str, Tensor]) -> Outcome:
    """The steps on fake CPU tensors under MemTracker."""
    from torch._subclasses import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    mode = FakeTensorMode()
    with mode:
        make_fake(model)
        fake_call = moved(call, "cpu")
        optimizer = adamw(model)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            laps = run_steps(model, optimizer, fake_call, tracker.reset_mod_stats)
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return laps.seconds, snapshot["Total"]


def moved(call: dict[str, Tensor], device: str) -> dict[str, Tensor]:
    """The inputs without their values, on another device."""
    return {name: empty_on(device, tensor) for name, tensor in call.items()}


def empty_on(device: str, tensor: Tensor) -> Tensor:
    """A tensor of the same size, stride and dtype."""
    import torch

    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)


def make_fake(model: nn.Module) -> None:
    """Exchange parameters and buffers for fakes on the CPU; tied ones stay tied.

    Call it under a FakeTensorMode. Building the model there fails, as does ``model.to``.
    """
    import torch

    made: dict[int, Any] = {}

    def fake(tensor: Tensor) -> Any:
        if id(tensor) not in made:
            data = empty_on("cpu", tensor)
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            made[id(tensor)] = torch.nn.Parameter(data) if is_parameter else data
        return made[id(tensor)]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            tensors.update({k: fake(v) for k, v in tensors.items() if v is not None})


WAYS: dict[str, Callable[[nn.Module, dict[str, Tensor]], Outcome]] = {
    "bare": bare,
    "graphmem": with_graphmem,
    "MemTracker": with_mem_tracker,
}


# -- one process each


def go(way: str, work: Workload) -> Measured:
    """Go one way in this process."""
    WAYS[way](*built(TINY))
    model, call = built(work)
    start, cpu_start = time.perf_counter(), time.process_time()
    seconds, peak = WAYS[way](model, call)
    total, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux: in KiB
    return Measured(tuple(seconds), total, cpu, rss_bytes, peak)


def go_in_process(way: str, work: Workload) -> Measured:
    """Go one way in a fresh process."""
    command = [sys.executable, __file__, "--way", way, "--work", json.dumps(asdict(work))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Measured(**json.loads(done.stdout))


def fastest(way: str, work: Workload, repeat: int) -> Measured:
    """The run with the smallest total of several."""
    runs = [go_in_process(way, work) for _ in range(repeat)]
    return min(runs, key=lambda run: run.total_seconds)


# -- the table


def table(rows: Mapping[str, Measured]) -> str:
    """The measurements and their ratios, as text."""
    lines = [
        f"{'':<12}{'step 1':>9}{'step 2':>9}{'total':>9}{'CPU':>9}{'peak RSS':>12}{'predicts':>12}"
    ]
    for way, row in rows.items():
        times = "".join(
            f"{s:>7.2f} s" for s in (*row.step_seconds, row.total_seconds, row.cpu_seconds)
        )
        peak = "-" if row.peak_bytes is None else format_bytes(row.peak_bytes)
        lines.append(f"{way:<12}{times}{format_bytes(row.rss_bytes):>12}{peak:>12}")
    for over, under in (("graphmem", "bare"), ("MemTracker", "graphmem")):
        if over in rows and under in rows:
            ratio = rows[over].total_seconds / rows[under].total_seconds
            cpu = rows[over].cpu_seconds / rows[under].cpu_seconds
            lines.append(f"{over} / {under}: {ratio:.2f} times the total, {cpu:.2f} the CPU's")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--layers", type=int, nargs="+", metavar="N", help="one table for each")
    made.add_argument("--config", type=Path, default=MODELS / "llama3_8b.json", metavar="FILE")
    made.add_argument("--batch", type=int, default=1)
    made.add_argument("--seq", type=int, default=2048)
    made.add_argument("--repeat", type=int, default=1, help="runs of each; the fastest is shown")
    made.add_argument("--only", choices=WAYS, action="append", help="leave out the other ways")
    made.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # in the fresh processes
    made.add_argument("--work", help=argparse.SUPPRESS)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every way and print the table."""
    asked = parser().parse_args(argv)
    if asked.way is not None:
        print(json.dumps(asdict(go(asked.way, Workload(**json.loads(asked.work))))))
        return 0
    for layers in asked.layers or [None]:
        changes = {} if layers is None else {"num_hidden_layers": layers}
        work = Workload(changes, asked.batch, asked.seq, str(asked.config))
        if layers is not None:
            print(f"{layers} layers")
        rows = {way: fastest(way, work, asked.repeat) for way in asked.only or WAYS}
        print(table(rows), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
