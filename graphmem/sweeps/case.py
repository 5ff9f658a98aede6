"""Cases: one model, its sizes and how it is run; and a grid of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from graphmem import devices, parallelism, techniques
from graphmem.allocator import parse_alloc_conf
from graphmem.errors import UsageError
from graphmem.options import (
    DEFAULTS,
    LISTS,
    Mode,
    Precision,
    Target,
    choice,
    nearest,
    parse_bytes,
)

OPTIONS = (
    *("target", "master_weights", "optimizer", "foreach", "fused", "set_to_none"),
    *("clip_grad_norm", "accumulate", "steps", "grad", "strict", "alloc_conf", "headroom"),
    *("trip_count", "routing", "assume", "freeze", "lora", "quantize"),
    *techniques.NAMES,
    *parallelism.NAMES,
)
"""What ``graphmem.analyze`` takes besides, by its names."""


@dataclass(frozen=True, slots=True)
class Case:
    """One analysis of a sweep.

    ``subject`` is as on the command line; ``inputs`` and ``dims`` are texts of ``--input`` and
    ``--dim``; ``mode`` None is training, or inference of an .onnx. ``options`` are others of
    ``graphmem.analyze``, as pairs in the order of their names.
    """

    subject: str
    batch: int | None = None
    seq: int | None = None
    precision: str | None = None
    device: str | None = None
    mode: str | None = None
    task: str | None = None
    inputs: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    default_dim: int | None = None
    rules: str | None = None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def runs_as(self) -> str:
        """The mode, resolved."""
        default = "inference" if Path(self.subject).suffix.lower() == ".onnx" else "training"
        return self.mode or default

    def at(self, axis: str, size: int | None) -> Case:
        """The case at another size; ``axis`` is batch or seq."""
        return replace(self, batch=size) if axis == "batch" else replace(self, seq=size)

    def size(self, axis: str) -> int | None:
        """Its batch or seq."""
        return self.batch if axis == "batch" else self.seq

    def to_dict(self) -> dict[str, Any]:
        """The case as JSON values."""
        return {**asdict(self), "mode": self.runs_as, "options": dict(self.options)}


def case(subject: str, **values: Any) -> Case:
    """A case, checked as far as that takes no torch.

    Args:
        values: fields of ``Case`` and options of ``graphmem.analyze``, by name.

    Raises:
        UsageError: naming what can't be used, with the nearest.
    """
    own = set(Case.__dataclass_fields__) - {"options", "subject"}
    others = {name: value for name, value in values.items() if name not in own}
    for name in others.keys() - set(OPTIONS):
        raise UsageError(f"sweep: no option {name!r}{nearest(name, (*own, *OPTIONS))}")
    fields = {name: _plain(value) for name, value in values.items() if name in own}
    changed = {name: value for name, value in _options(others) if value != DEFAULTS[name]}
    return _checked(Case(subject, **fields, options=tuple(sorted(changed.items()))))


def _options(others: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The other options, as values that compare and hash."""
    for name, value in others.items():
        if name in LISTS:
            yield name, techniques.as_text(value)
        elif name == "assume":
            yield name, tuple(sorted(dict(value or ()).items()))
        elif name == "lora" and isinstance(value, Mapping):
            yield name, ",".join(f"{key}={_joined(part)}" for key, part in value.items())
        elif name == "headroom":
            yield name, parse_bytes(value or 0, name)
        else:
            yield name, value


def _joined(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _checked(made: Case) -> Case:
    for name in ("batch", "seq"):
        value = getattr(made, name)
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{name}: {value!r} is not a whole number of 1 or more")
    choice(Mode, made.runs_as, "mode")
    if made.precision is not None:
        choice(Precision, made.precision, "precision")
    options = dict(made.options)
    if choice(Target, options.get("target", "cuda"), "target") is Target.ONNXRUNTIME:
        raise UsageError("sweep: target onnxruntime is for graphmem analyze; use cuda or cpu")
    parse_alloc_conf(options.get("alloc_conf") or "")
    if made.device is None:
        return made
    return replace(made, device=devices.find(made.device).name)


def cases(
    subjects: str | Iterable[str],
    *,
    batch: int | Iterable[int] | None = None,
    seq: int | Iterable[int] | None = None,
    precision: str | Iterable[str | None] | None = None,
    device: str | Iterable[str | None] | None = None,
    **others: Any,
) -> list[Case]:
    """Every combination of some models, batch sizes, sequence lengths, precisions and GPUs.

    Args:
        subjects: as on the command line: ``"torchvision:resnet50"``, ``"model.py:build"``.
        batch: one or several; None leaves it to the subject, as do the others.
        seq: as ``batch``.
        precision: as ``batch``.
        device: as ``batch``.
        others: the same for all, as ``graphmem.analyze`` takes them, and ``inputs``, ``task``.

    Raises:
        UsageError: naming what can't be used.
    """
    axes = [list(_each(values)) for values in (subjects, precision, device, seq, batch)]
    return [
        case(s, batch=b, seq=q, precision=p, device=d, **others) for s, p, d, q, b in product(*axes)
    ]


def _each(values: Any) -> Iterator[Any]:
    """One value, or several, each once."""
    alone = isinstance(values, str) or not isinstance(values, Iterable)
    yield from (values,) if alone else dict.fromkeys(values)
