"""Rows that name a technique: which one, and why a prediction of one is off.

The page ``docs/truth.md`` has a table by technique, one of each row, what explains each error
above ``EXPLAINED_FROM``, and what was not predicted and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from tools.truth import outcome
from tools.truth.outcome import Outcome
from tools.truth.printing import Families

NAMED = ("litgpt", "peft", "torchtune")
"""The families whose rows name a technique."""

EXPLAINED_FROM = 0.05
NOT_EXPLAINED = "Not explained."
GIGA = 10**9

INTRODUCTION = """\
# Techniques, predicted and measured

Rows of other people's measurements on GPUs that name a technique, each predicted from the
model's configuration and the recipe's documented settings alone. Nothing is fitted but the
lengths of peft's batches, which nobody published: one length a figure, from the rows of LoRA of
rank 32, which are therefore not counted. Errors are predicted over measured, less one.

Written by `tools/truth_report.py --page`; `tools/truth/litgpt.py`, `peft.py` and `torchtune.py`
say what each recipe does, with the files and commits of it."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the rows whose names start with ``name`` are off; ``metric`` is a word of theirs."""

    family: str
    name: str
    why: str
    metric: str = ""

    def is_about(self, o: Outcome) -> bool:
        """Whether it explains a row."""
        is_named = o.family == self.family and o.name.startswith(self.name)
        return is_named and self.metric in o.metric


_NO_STATES = (
    "The row contradicts its settings: weights, gradients and AdamW's two states in bf16 are four "
    "times {weights} GB, more than the 23.7 GB of its GPU, so they can't have been all there. "
    "What ran instead is not known; TinyLlama by the same recipe is within 2 %."
)
_LOGITS = (
    "The loop holds the last micro-batch's fp32 logits, of 256,000 words, while the next is "
    "computed: 1.05 GB where both are as long as the longest example, as they are here. In the "
    "measured run the one before had its own length. Without those logits the prediction would "
    "be up to 1.05 GB lower: the measurement lies between."
)
REASONS = (
    Reason("litgpt", "phi-3/full", _NO_STATES.format(weights="7.6")),
    Reason("litgpt", "llama-3.2-3b/full", _NO_STATES.format(weights="7.2")),
    Reason("litgpt", "gemma-2b/lora", _LOGITS),
    Reason("litgpt", "gemma2-2b/lora", _LOGITS),
    Reason(
        "torchtune",
        "Llama 3.2 3B full finetune +8bit AdamW",
        "torchao compiles its step, and the report says as an assumption that it needs no "
        "temporaries. The one of the tied embedding (394 million elements) may: an fp32 tensor of "
        "its size is 1.47 GiB, of 1.58 GiB that are missing. This was not measured.",
    ),
    Reason(
        "torchtune",
        "Llama-2-7B LoRA",
        "Not explained. Examples have many lengths up to 512 tokens, and here all have 512; but in "
        "a trial of eight micro-batches of 90 to 512 tokens 0.1 GB more was reserved, not 1 GB. "
        "Neither the GPU nor the version of torch is in the source.",
    ),
    Reason(
        "peft",
        "lora--llama-3.2-3B-rank32-lorafa",
        "1.6 GB short: as much as fp32 copies of the inputs of the frozen matrices A, which "
        "autograd does not save where A needs no gradient. Why they are kept is not known.",
    ),
    Reason(
        "peft",
        "osf--",
        "3 GB short after a step already, so in what lives from step to step and not in "
        "activations. Which tensors these are is not known.",
    ),
)


def technique(o: Outcome) -> str:
    """The technique that a row names, in words."""
    if o.family == "peft":
        is_frozen_a = o.name.endswith("lorafa")
        return "peft: lora-fa" if is_frozen_a else f"peft: {o.name.partition('--')[0]}"
    return f"{o.family}: {_of_recipe(o)}"


def _of_recipe(o: Outcome) -> str:
    if o.family == "litgpt":
        return {
            "full": "full fine-tuning",
            "nf4": "LoRA, 4-bit weights",
            "nf4-double": "LoRA, 4-bit weights and tables",
        }.get(o.group, "LoRA")
    return o.group


def why(o: Outcome) -> str:
    """What explains a row's error, where it is above ``EXPLAINED_FROM``; else nothing."""
    if o.error is None or abs(o.error) <= EXPLAINED_FROM:
        return ""
    return next((reason.why for reason in REASONS if reason.is_about(o)), NOT_EXPLAINED)


def page(families: Families) -> str:
    """``docs/truth.md``."""
    rows = [o for name in NAMED if name in families for o in families[name][1]]
    missing = [name for name in NAMED if name not in families]
    parts = (
        INTRODUCTION,
        *[
            f"Not run for this page: {name}; the README's table has its summary."
            for name in missing
        ],
        "## By technique",
        by_technique(rows),
        f"## Errors above {100 * EXPLAINED_FROM:.0f} %",
        explained(rows),
        "## Not predicted",
        unpredicted(rows),
        "## Each row",
        "Sizes are in GB of 10⁹ bytes.",
        each(rows),
    )
    return "\n\n".join(parts) + "\n"


def by_technique(rows: Iterable[Outcome]) -> str:
    """A line for each technique: rows, predicted ones, the median and the worst error."""
    found: dict[str, list[Outcome]] = {}
    for o in rows:
        found.setdefault(technique(o), []).append(o)
    headers = ["technique", "rows", "predicted", "within 5 %", "median error", "worst"]
    return _table([_line(name, own) for name, own in sorted(found.items())], headers, "lrrrrr")


def _line(name: str, rows: Sequence[Outcome]) -> list[str]:
    errors = [o.error for o in rows if o.error is not None]
    near = sum(abs(error) <= EXPLAINED_FROM for error in errors)
    counts = [name, str(len(rows)), str(len(errors))]
    if not errors:
        return [*counts, "", "", ""]
    return [*counts, str(near), _percent(outcome.median(errors)), _percent(outcome.worst(errors))]


def explained(rows: Iterable[Outcome]) -> str:
    """The rows whose error is large, by what explains them."""
    by_reason: dict[str, list[Outcome]] = {}
    for o in rows:
        if why(o):
            by_reason.setdefault(why(o), []).append(o)
    return "\n".join(f"- {_names(own)}: {reason}" for reason, own in by_reason.items()) or "None."


def _names(rows: Sequence[Outcome]) -> str:
    errors: Mapping[str, list[str]] = {o.name: [] for o in rows}
    for o in rows:
        errors[o.name].append(_signed(o.error))
    return "; ".join(f"**{name}** ({', '.join(own)})" for name, own in errors.items())


def unpredicted(rows: Iterable[Outcome]) -> str:
    """The rows without a prediction, by the reason."""
    names: dict[str, dict[str, None]] = {}
    for o in rows:
        if o.predicted is None:
            names.setdefault(o.skipped, {})[o.name] = None
    return "\n".join(f"- {', '.join(own)}: {reason}." for reason, own in names.items()) or "None."


def each(rows: Iterable[Outcome]) -> str:
    """A line for each row."""
    lines = [
        [technique(o), o.name, o.metric, _size(o.predicted), _size(o.measured), _signed(o.error)]
        for o in sorted(rows, key=lambda o: (technique(o), o.name))
    ]
    headers = ["technique", "row", "what was measured", "predicted", "measured", "error"]
    return _table(lines, headers, "lllrrr")


def _table(lines: Sequence[Sequence[str]], headers: Sequence[str], align: str) -> str:
    sides = {"l": "left", "r": "right"}
    aligned = [sides[side] for side in align]
    return tabulate(lines, headers, "github", disable_numparse=True, colalign=aligned)


def _size(value: float | None) -> str:
    return "" if value is None else f"{value / GIGA:,.2f}"


def _percent(error: float) -> str:
    return f"{100 * error:.2f} %"


def _signed(error: float | None) -> str:
    return "" if error is None else f"{100 * error:+.1f} %"
