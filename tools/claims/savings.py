"""Claims about what techniques save, and about the quick formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import graphmem
from graphmem.report import Report
from tools import checkpointing
from tools.claims.section import Row, Section, gb, mb, percent, times
from tools.claims.training import GPT2, LLAMA_8B, TRAININGS, kept, loaded, trained


def eight_bits() -> Section:
    """8-bit states beside those of torch's AdamW."""
    return Section(
        "8-bit Adam saves 75 % of the states",
        "Held if it is 74 to 76 %.",
        "GPT-2, 1 x 128 tokens, beside torch's AdamW in the same precision. Each 256 codes of a"
        " byte have a maximum of 4 bytes, and small tensors stay in 32 bits; transformers' Trainer"
        " keeps those of embeddings in 32 bits too. In bf16 torch's own states are bf16, of which"
        " 8 bits are a half; states that bitsandbytes keeps in 32 bits are so there too. The peak"
        " also loses the temporaries of torch's `foreach`, which bitsandbytes' step does not"
        " have.",
        ("states, MB", "of AdamW's", "saved", "peak, GB", "peak saved"),
        tuple(_rows_of_optimizers()),
    )


def _rows_of_optimizers() -> Iterator[Row]:
    for precision in ("fp32", "bf16"):
        first: Report | None = None
        for optimizer in ("adamw", "adamw8bit", "adamw_bnb_8bit"):
            report, _ = trained(GPT2, 1, 128, optimizer=optimizer, precision=precision)
            first = first or report
            yield _optimizer(f"`{optimizer}`, {precision}", report, first)


def _optimizer(name: str, report: Report, first: Report) -> Row:
    states, before = (r.breakdown["optimizer_states"] for r in (report, first))
    peak, peak_before = (r.peak.allocated_bytes for r in (report, first))
    if report is first:
        return Row(name, (mb(states), mb(before), "", gb(peak), ""))
    saved = percent(before - states, before)
    cells = (mb(states), mb(before), saved, gb(peak), percent(peak_before - peak, peak_before))
    return Row(name, cells, 0.74 <= 1 - states / before <= 0.76)


def checkpoints() -> Section:
    """Every block checkpointed, of the four models of docs/checkpointing.md."""
    return Section(
        "Checkpointing saves 50 to 70 % of the activations",
        "Held if what is held after forward shrinks by 50 to 70 %.",
        "Each block checkpointed. The peak saves less: it moves to what no block keeps (the logits"
        " and their loss, the optimizer's step), or holds one block's recomputation."
        " [More ways](checkpointing.md), and two that save nothing.",
        ("activations, GB", "checkpointed, GB", "saved", "peak saved"),
        tuple(_checkpointed(run) for run in checkpointing.RUNS),
    )


def _checkpointed(run: checkpointing.Run) -> Row:
    subject = checkpointing.loaded(run)
    (held, peak), (less, lower) = (
        (checkpointing.held_after_forward(schedule), report.peak.allocated_bytes)
        for report, schedule in (
            checkpointing.simulated(subject, {**run.options, **way})
            for way in ({}, {"checkpoint": run.blocks})
        )
    )
    saved = percent(held - less, held)
    cells = (gb(held), gb(less), saved, percent(peak - lower, peak))
    return Row(run.title, cells, 0.5 <= 1 - less / held <= 0.7)


def quick_formula() -> Section:
    """``graphmem estimate`` beside the simulated runs."""
    return Section(
        "The quick formula errs by less than 10 %",
        "Held if the formula's sum is within 10 % of the simulated peak.",
        "`graphmem estimate` with its default coefficients: parameters, gradients, states, the"
        " activations (three tensors a layer where the configuration tells the hidden size, else"
        " the sum of the layers' outputs) and 0.15 of all that. [Term by term](estimate.md).",
        ("formula, GB", "simulated peak, GB", "error"),
        tuple(_rows_of_formula()),
    )


def _rows_of_formula() -> Iterator[Row]:
    for training in TRAININGS:
        if "checkpoint" in training.options:
            continue
        options: dict[str, Any] = {"device": "A100-80GB", **training.options}
        subject = loaded(training.subject, training.batch, training.seq, options)
        made = graphmem.estimate(subject.model, subject.args, subject.kwargs, **options)
        assert made.simulated is not None
        total, peak = made.total_bytes, made.simulated.allocated_bytes
        cells = (gb(total), gb(peak), f"{100 * (total / peak - 1):+.1f} %")
        yield Row(training.title, cells, abs(total - peak) < 0.1 * peak)


RANKS = 8


def zero() -> Section:
    """One rank of eight."""
    gpt2 = trained(GPT2, 8, 1024)[0]
    llama = trained(LLAMA_8B, 1, 2048, precision="bf16", device="H200")[0]
    ways: tuple[dict[str, Any], ...] = (
        {"zero": 1, "bucket_view": True},
        *({"zero": stage} for stage in (2, 3)),
    )
    rows = [_rank(f"GPT-2, `--zero {way['zero']}`", GPT2, 8, 1024, gpt2, **way) for way in ways]
    sharded: dict[str, Any] = {"zero": 3, "precision": "bf16", "device": "H200"}
    rows.append(_rank("Llama-3-8B, bf16, `--zero 3`", LLAMA_8B, 1, 2048, llama, **sharded))
    return Section(
        "ZeRO divides by the ranks",
        f"Held if the peak of one of {RANKS} ranks is at most 1.1 / {RANKS} of that of one GPU.",
        "GPT-2 with 8 x 1,024 tokens and Llama-3-8B with 1 x 2,048 a rank, beside one GPU alone."
        " ZeRO divides what belongs to parameters (stage 1 in whole tensors; stage 2 beside an fp32"
        " copy of the rank's part, which counts as a state); what each rank keeps of its own batch"
        " stays, and gathered parameters come on top. [More ranks](parallel.md).",
        ("one GPU, GB", "a rank, GB", "divided by", "states divided by", "kept divided by"),
        tuple(rows),
    )


def _rank(name: str, subject: str, batch: int, seq: int, alone: Report, **way: Any) -> Row:
    rank, _ = trained(subject, batch, seq, ranks=RANKS, **way)
    before, after = alone.peak.allocated_bytes, rank.peak.allocated_bytes
    states, own = (r.breakdown["optimizer_states"] for r in (alone, rank))
    divided = times(before, after), times(states, own), times(kept(alone), kept(rank))
    cells = (gb(before), gb(after), *divided)
    return Row(name, cells, after * RANKS <= 1.1 * before)


STEPS = 4


def accumulation() -> Section:
    """Several micro-batches a step, beside one of the same size."""
    return Section(
        f"{STEPS} accumulation steps cost {STEPS} gradients",
        f"Held if the peak grows by at least {STEPS - 1} times the gradients.",
        "Micro-batches of the same size. Gradients are summed in place: one set of them, which is"
        " there while the next micro-batch runs. So they cost at most one set (and at its sum one"
        " more tensor), and nothing where the peak had all gradients anyway.",
        ("1, GB", f"{STEPS}, GB", "more, MB", "gradients, MB"),
        tuple(_accumulated(batch, seq) for batch, seq in ((1, 128), (8, 128), (8, 1024))),
    )


def _accumulated(batch: int, seq: int) -> Row:
    once, _ = trained(GPT2, batch, seq)
    often, _ = trained(GPT2, batch, seq, accumulate=STEPS)
    gradients = sum(layer.gradient_bytes for layer in once.layers)
    before, after = once.peak.allocated_bytes, often.peak.allocated_bytes
    cells = (gb(before), gb(after), mb(after - before), mb(gradients))
    return Row(f"GPT-2, {batch} x {seq:,}", cells, after - before >= (STEPS - 1) * gradients)


SECTIONS = (eight_bits, checkpoints, quick_formula, zero, accumulation)
