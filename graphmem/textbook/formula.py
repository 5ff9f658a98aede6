"""The textbook's formula, term by term.

1. Parameters: their number times the bytes of the precision.
2. Gradients: as many bytes.
3. Optimizer: its states, each as large as the parameters (``states.STATES``); with master
   weights an fp32 copy more, and fp32 states.
4. Activations: ``factor x batch x seq x hidden x layers`` elements (the ledger), or
   ``layers`` times the bytes of one (the quick formula), or a number of bytes.
5. Temporaries: a share of the four others (the ledger), or of the activations (the quick
   formula).

Head-room is no term: it is told apart. What the formula leaves out is not corrected here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from graphmem.errors import UsageError
from graphmem.options import Precision
from graphmem.textbook.states import states_of

PARAMETERS, GRADIENTS, OPTIMIZER = "parameters", "gradients", "optimizer states"
ACTIVATIONS, TEMPORARIES = "activations", "temporaries"

LEDGER_FACTOR = Fraction(3)
"""Tensors of [batch, seq, hidden] that a layer keeps, where no factor is given.

The ledger's own: LLaMA-7B, 4 x 2,048 tokens x 4,096 x 32 layers x 2 B = 2.15 GB; it has 6.
"""
LEDGER_SHARE = Fraction(15, 100)
"""Of temporaries, where no share is given: the ledger has 9 GB to 14 + 14 + 28 + 6 = 62."""

_BYTES = {
    Precision.FP32: (4, 4),
    Precision.BF16: (2, 2),
    Precision.FP16: (2, 2),
    Precision.AMP_BF16: (4, 2),
    Precision.AMP_FP16: (4, 2),
}
"""Bytes of a parameter and of an activation."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the formula is given.

    ``activation_bytes`` are those of one layer; ``activations`` is their sum, already counted
    as ``counted`` says, in place of both other ways. None: not given.
    """

    params: int
    precision: Precision = Precision.FP32
    optimizer: str = "adamw"
    master_weights: bool = False
    batch: int | None = None
    seq: int | None = None
    hidden: int | None = None
    layers: int | None = None
    activation_bytes: int | None = None
    activation_factor: Fraction | None = None
    temporary_share: Fraction | None = None
    activations: int | None = None
    counted: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """One term: its bytes, and the arithmetic that gives them."""

    name: str
    bytes: int
    how: str


def terms(numbers: Numbers) -> tuple[Term, ...]:
    """The five terms.

    Raises:
        UsageError: naming what is missing, or an optimizer that has no line in the table.
    """
    each, _ = _BYTES[numbers.precision]
    first = (
        Term(PARAMETERS, numbers.params * each, f"{numbers.params:,} x {each} B"),
        Term(GRADIENTS, numbers.params * each, f"{numbers.params:,} x {each} B"),
        _optimizer(numbers, each),
        _activations(numbers),
    )
    return (*first, _temporaries(numbers, first))


def _optimizer(numbers: Numbers, each: int) -> Term:
    states = states_of(numbers.optimizer)
    if numbers.master_weights:
        each = 4
    size = Fraction(each) if states.nbytes is None else states.nbytes
    nbytes = int(numbers.params * states.count * size)
    plural = "" if states.count == 1 else "s"
    how = f"{numbers.optimizer}: {states.count} state{plural}"
    if states.count:
        how += f" x {numbers.params:,} x {_number(size)} B"
    if numbers.master_weights:
        return Term(OPTIMIZER, nbytes + numbers.params * each, f"{how}, and an fp32 copy")
    return Term(OPTIMIZER, nbytes, how)


def _activations(numbers: Numbers) -> Term:
    if numbers.activations is not None:
        return Term(ACTIVATIONS, numbers.activations, numbers.counted)
    if numbers.activation_bytes is not None:
        return _layers_of_bytes(numbers, numbers.activation_bytes)
    sizes = _given(numbers, ("batch", "seq", "hidden", "layers"))
    _, each = _BYTES[numbers.precision]
    factor = LEDGER_FACTOR if numbers.activation_factor is None else numbers.activation_factor
    batch, seq, hidden, layers = sizes
    nbytes = int(factor * batch * seq * hidden * layers * each)
    how = f"{_number(factor)} x {batch} x {seq:,} x {hidden:,} x {layers} layers x {each} B"
    return Term(ACTIVATIONS, nbytes, how)


def _layers_of_bytes(numbers: Numbers, nbytes: int) -> Term:
    (layers,) = _given(numbers, ("layers",))
    factor = Fraction(1) if numbers.activation_factor is None else numbers.activation_factor
    times = "" if factor == 1 else f"{_number(factor)} x "
    return Term(
        ACTIVATIONS, int(factor * layers * nbytes), f"{times}{layers} layers x {nbytes:,} B"
    )


def _given(numbers: Numbers, names: Sequence[str]) -> list[int]:
    missing = [f"--{name}" for name in names if getattr(numbers, name) is None]
    if missing:
        instead = "" if names == ("layers",) else ", or --layers and --activation-bytes"
        raise UsageError(f"the activations need {', '.join(missing)}{instead}")
    return [getattr(numbers, name) for name in names]


def _temporaries(numbers: Numbers, others: Sequence[Term]) -> Term:
    quick = numbers.activation_bytes is not None
    base = sum(term.bytes for term in others if not quick or term.name == ACTIVATIONS)
    share = LEDGER_SHARE if numbers.temporary_share is None else numbers.temporary_share
    of = "the activations" if quick else "the four above"
    return Term(TEMPORARIES, int(share * base), f"{_number(share)} of {of}")


def _number(value: Fraction) -> str:
    return f"{float(value):.10g}"
