"""Numbers, tensors and names as people read them.

The only place where bytes become KiB, MiB or GiB. Imports nothing of the project; integer
arithmetic throughout, so that a number of any size is rounded exactly, halves away from zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_BYTE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB")
_COUNT_UNITS = ("K", "M", "B", "T")
_ELLIPSIS = "…"
_LEAST_COMPONENT = 9

UNITS = (*_DECIMAL_UNITS[:1], *_BYTE_UNITS[:4], *_DECIMAL_UNITS[1:])
"""The units that a reader can choose for all sizes."""

_chosen: ContextVar[str | None] = ContextVar("unit", default=None)


@contextmanager
def in_unit(unit: str | None) -> Iterator[None]:
    """Sizes are written in one of ``UNITS``; of None each in the one that suits it."""
    token = _chosen.set(unit)
    try:
        yield
    finally:
        _chosen.reset(token)


_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "complex64": "c64",
    "complex128": "c128",
}
"""The abbreviations of torch.fx's own printouts; every other dtype keeps its name.

Source: ``torch.dtype.abbr`` of torch 2.13 (its ``b8`` for bool is left out as a riddle).
"""


def format_bytes(nbytes: int, *, signed: bool = False) -> str:
    """Bytes with a binary unit and two decimals: ``1.50 GiB``, ``512 B``, ``-2.00 MiB``.

    Args:
        nbytes: a number of bytes, or a difference of two.
        signed: write the plus of a positive difference too.
    """
    sign = "-" if nbytes < 0 else "+" if signed and nbytes > 0 else ""
    size = abs(nbytes)
    if (unit := _chosen.get()) is not None:
        return f"{sign}{_in(size, unit)}"
    if size < 1024:
        return f"{sign}{size} B"
    text = ""
    for power, unit in enumerate(_BYTE_UNITS, start=1):
        hundredths = _divide(size * 100, 1024**power)
        text = f"{sign}{_point(hundredths, 2)} {unit}"
        if hundredths < 1024 * 100:
            break
    return text


def _in(size: int, unit: str) -> str:
    """A size in one unit, whatever it is."""
    if unit == "B":
        return f"{size:,} B"
    units, base = (_BYTE_UNITS, 1024) if unit in _BYTE_UNITS else (_DECIMAL_UNITS[1:], 1000)
    hundredths = _divide(size * 100, base ** (1 + units.index(unit)))
    return f"{_point(hundredths, 2)} {unit}"


def format_decimal(nbytes: int, decimals: int = 2, *, unit: str | None = None) -> str:
    """Bytes in powers of 1000, as textbooks count: ``14.00 GB``, ``0.4 GB``, ``512 B``.

    Args:
        unit: one of ``B``, ``kB``, ``MB``, ``GB``, ``TB``; None takes the largest that fits.
    """
    powers = range(len(_DECIMAL_UNITS))
    largest = max((p for p in powers if abs(nbytes) >= 1000**p), default=0)
    power = largest if unit is None else _DECIMAL_UNITS.index(unit)
    if power == 0:
        return f"{nbytes} B"
    sign, size = ("-" if nbytes < 0 else ""), abs(nbytes)
    text = _point(_divide(size * 10**decimals, 1000**power), decimals)
    return f"{sign}{text} {_DECIMAL_UNITS[power]}"


def format_count(count: int) -> str:
    """A count in three digits: ``8.03B`` (10^9), ``25.6M``, ``350K``, ``512``."""
    sign, count = ("-" if count < 0 else ""), abs(count)
    if count < 1000:
        return f"{sign}{count}"
    text = ""
    for power, unit in enumerate(_COUNT_UNITS, start=1):
        for decimals in (2, 1, 0):
            scaled = _divide(count * 10**decimals, 1000**power)
            text = f"{sign}{_point(scaled, decimals)}{unit}"
            if scaled < 1000:
                return text
    return text


def format_share(part: int, whole: int) -> str:
    """A part of a whole in per cent with one decimal: ``12.5%``."""
    return f"{_point(_divide(part * 1000, whole), 1)}%" if whole > 0 else "-"


def format_tensor(dtype: str, shape: Sequence[int]) -> str:
    """A tensor as torch.fx prints it: ``bf16[8, 1024]``, and ``f32[]`` for a scalar."""
    name = dtype.removeprefix("torch.")
    return f"{_DTYPES.get(name, name)}[{', '.join(map(str, shape))}]"


def shorten(text: str, width: int) -> str:
    """The text in at most ``width`` characters, without its middle if it is longer."""
    return _cut(text, width, head=(width - 1) // 2)


def shorten_dotted(path: str, width: int) -> str:
    """``model.layers.3.post…norm``: a dotted path in at most ``width`` characters.

    Its long components lose their middle, which keeps the numbers that tell rows apart;
    where that is not enough, the path loses most of its beginning.
    """
    parts = path.split(".")
    for i in sorted(range(len(parts)), key=lambda i: -len(parts[i])):
        over = len(".".join(parts)) - width
        parts[i] = shorten(parts[i], max(_LEAST_COMPONENT, len(parts[i]) - max(0, over)))
    return _cut(".".join(parts), width, head=width // 4)


def shorten_path(path: str, width: int) -> str:
    """``…/folder/file.py:12`` with as many folders as fit into ``width`` characters."""
    *folders, name = path.replace("\\", "/").split("/")
    if len(path) <= width:
        return path
    for start in range(1, len(folders)):
        text = "/".join((_ELLIPSIS, *folders[start:], name))
        if len(text) <= width:
            return text
    return shorten(name, width)


def _cut(text: str, width: int, head: int) -> str:
    """The first ``head`` characters, an ellipsis, and as much of the end as there is room."""
    if len(text) <= width:
        return text
    tail = width - head - 1
    return (text[:head] + _ELLIPSIS + text[len(text) - tail :])[: max(0, width)]


def _divide(value: int, by: int) -> int:
    """``value / by`` for ``value >= 0``, rounded to the nearest integer, halves up."""
    return (2 * value + by) // (2 * by)


def _point(scaled: int, decimals: int) -> str:
    """An integer with its decimal point put back: ``_point(803, 2) == '8.03'``."""
    if decimals == 0:
        return str(scaled)
    whole, rest = divmod(scaled, 10**decimals)
    return f"{whole}.{rest:0{decimals}}"
