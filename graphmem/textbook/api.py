"""``graphmem.estimate``: the formula from numbers alone, or of a model and beside its run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from graphmem.errors import UsageError
from graphmem.options import Mode, Precision, choice, parse_bytes
from graphmem.report import Report
from graphmem.schedule import TOP_LEVEL
from graphmem.textbook.compared import Simulated, compared
from graphmem.textbook.formula import Numbers, Term, terms
from graphmem.textbook.numbers import headroom_bytes, parse_count, parse_share

SCHEMA = "graphmem.estimate/1"
_HIDDEN = ("hidden_size", "d_model")
_LAYERS = ("num_hidden_layers", "num_layers")


@dataclass(frozen=True, slots=True)
class Estimate:
    """The formula's answer in bytes.

    ``headroom_bytes`` are what is to stay free, beside ``total_bytes``; ``simulated`` is
    None where no model was given.
    """

    terms: tuple[Term, ...]
    headroom_bytes: int
    simulated: Simulated | None = None

    @property
    def total_bytes(self) -> int:
        """The sum of all terms."""
        return sum(term.bytes for term in self.terms)

    def to_dict(self) -> dict[str, Any]:
        """The estimate as JSON values, schema ``graphmem.estimate/1``."""
        values = {"schema": SCHEMA, "total_bytes": self.total_bytes, **asdict(self)}
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return plain

    def __str__(self) -> str:
        from graphmem.render.estimate import rendered

        return rendered(self.to_dict(), "table")


def estimate(
    model: Any = None,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    params: int | float | str | None = None,
    precision: str | None = None,
    optimizer: Any = "adamw",
    master_weights: bool = False,
    batch: int | None = None,
    seq: int | None = None,
    hidden: int | None = None,
    layers: int | None = None,
    activation_bytes: int | str | None = None,
    activation_factor: float | str | None = None,
    temporary_share: float | str | None = None,
    headroom: int | str = 0,
    **options: Any,
) -> Estimate:
    """The textbook's formula for the memory of a training step.

    Args:
        model: an nn.Module, to have its simulated run beside the formula; without one, the
            numbers alone are read, and torch is not imported.
        inputs: of the model, as for ``graphmem.analyze``.
        kwargs: as ``inputs``.
        params: how many parameters, such as ``7e9`` or ``"7B"``; else those of the model.
        precision: as for ``analyze``; without a model fp32 by default.
        optimizer: a name; see ``graphmem.textbook.states``.
        master_weights: count an fp32 copy of the parameters, and fp32 states.
        batch: sequences of a batch; else those of the model's first input.
        seq: tokens of a sequence, as ``batch``.
        hidden: elements of a token; else those of the model's configuration. Without any, the
            activations of a model are the sum of its layers' outputs.
        layers: how many, as ``hidden``.
        activation_bytes: of one layer, in bytes or as ``"50MB"``: the quick formula.
        activation_factor: tensors of [batch, seq, hidden] that a layer keeps (3).
        temporary_share: of the four other terms, or in the quick formula of the activations
            (0.15).
        headroom: what is to stay free, in bytes or as ``"2GiB"``, or ``"20%"`` of the GPU.
        **options: of ``analyze``, for the simulated run.

    Raises:
        GraphmemError: in one line, for what can't be used or is missing.
    """
    numbers = numbers_of(
        params=params,
        precision=precision,
        optimizer=optimizer if isinstance(optimizer, str) else _name(optimizer),
        master_weights=master_weights,
        batch=batch,
        seq=seq,
        hidden=hidden,
        layers=layers,
        activation_bytes=activation_bytes,
        activation_factor=activation_factor,
        temporary_share=temporary_share,
    )
    if model is None:
        return of_numbers(numbers, headroom, options)
    from graphmem.analysis import analyze

    run = {"precision": precision, "optimizer": optimizer, "master_weights": master_weights}
    report = analyze(model, inputs, kwargs, **run, **options)
    return of_report(numbers, report, getattr(model, "config", None), headroom)


def numbers_of(
    *,
    params: int | float | str | None,
    precision: str | None,
    activation_bytes: int | str | None,
    activation_factor: float | str | None,
    temporary_share: float | str | None,
    **others: Any,
) -> Numbers:
    """The formula's numbers as a user gave them; no ``params`` are 0.

    Raises:
        UsageError: naming the option.
    """
    return Numbers(
        params=0 if params is None else parse_count(params, "params"),
        precision=choice(Precision, precision or "fp32", "precision"),
        activation_bytes=_bytes(activation_bytes, "activation-bytes"),
        activation_factor=_share(activation_factor, "activation-factor"),
        temporary_share=_share(temporary_share, "temporary-share"),
        **others,
    )


def of_numbers(numbers: Numbers, headroom: int | str, options: Mapping[str, Any]) -> Estimate:
    """The formula of numbers alone.

    Raises:
        UsageError: if there is no number of parameters, or an option of a simulated run.
    """
    if not numbers.params:
        raise UsageError("estimate: of what? give --params, such as 7e9, or a model")
    if options:
        name = next(iter(options)).replace("_", "-")
        raise UsageError(f"--{name} is for a simulated run: give a model too")
    return _made(numbers, headroom)


def of_report(numbers: Numbers, report: Report, config: Any, headroom: int | str) -> Estimate:
    """The formula of a model, with its simulated run beside it.

    Args:
        numbers: what was given; ``params`` 0 takes those of the model.
        config: the model's own configuration, if it has one.

    Raises:
        UsageError: if the run is no training.
    """
    if report.created_from["mode"] != Mode.TRAINING:
        raise UsageError("estimate: the textbook's formula is of a training step")
    filled = _filled(numbers, report, config)
    made = _made(filled, headroom)
    return replace(made, simulated=compared(filled, made.terms, report))


def _made(numbers: Numbers, headroom: int | str) -> Estimate:
    made = terms(numbers)
    return Estimate(made, headroom_bytes(headroom, sum(term.bytes for term in made)))


def _filled(numbers: Numbers, report: Report, config: Any) -> Numbers:
    """The numbers, with those of the model where none were given."""
    shape = report.subject.inputs[0].shape if report.subject.inputs else ()
    filled = replace(
        numbers,
        params=numbers.params or report.subject.parameters,
        batch=numbers.batch or next(iter(shape), None),
        seq=numbers.seq or (shape[1] if len(shape) > 1 else None),
        hidden=numbers.hidden or _first(config, _HIDDEN),
        layers=numbers.layers or _first(config, _LAYERS),
    )
    known = filled.activation_bytes or (filled.hidden and filled.layers and filled.seq)
    if known:
        return filled
    holders = {layer.module.rpartition(".")[0] for layer in report.layers} | {TOP_LEVEL}
    leaves = (layer for layer in report.layers if layer.module not in holders)
    steps = len(report.steps)  # a layer counts its calls in all of them
    outputs = sum(layer.output_bytes * layer.calls // steps for layer in leaves)
    return replace(
        filled, activations=outputs, counted="each layer's largest output, times its calls"
    )


def _first(config: Any, names: tuple[str, ...]) -> int | None:
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if isinstance(value, int)), None)


def _name(optimizer: Any) -> str:
    return str(getattr(optimizer, "__name__", type(optimizer).__name__)).lower()


def _bytes(value: int | str | None, option: str) -> int | None:
    return None if value is None else parse_bytes(value, option)


def _share(value: float | str | None, option: str) -> Fraction | None:
    return None if value is None else parse_share(value, option)
