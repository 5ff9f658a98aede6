"""From a file of ``torch.cuda.memory._dump_snapshot`` to a ``Snapshot``, checked.

Source: ``_snapshot`` in torch/cuda/memory.py, ``_memory_snapshot`` in
torch/csrc/cuda/Module.cpp (memorySnapshot): the names of all keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from graphmem.allocator import AllocatorSettings, Piece, Segment, State, parse_alloc_conf
from graphmem.allocator.settings import INTERVALS
from graphmem.errors import ModelLoadError, UsageError, one_line
from graphmem.snapshots.pickles import plain
from graphmem.snapshots.trace import Action, DeviceTrace, Entry, Frame, Snapshot

MAX_BYTES = 512 * 1024 * 1024
"""The largest file that is read: in memory it becomes some ten times as large."""

MAX_DEVICES = 1024

MAX_BLOCK_BYTES = 1 << 40
"""More than any GPU has: 1 TiB."""

_PUBLIC_POOL = (0, 0)
_STATES = {
    **{str(state): state for state in State},
    "active_awaiting_free": State.PENDING,
}
_ACTIONS = {str(action): action for action in Action}


def load(path: Path, max_bytes: int = MAX_BYTES) -> Snapshot:
    """Read a snapshot.

    Raises:
        UsageError: if there is no such file, or it is too large.
        ModelLoadError: if it is not a whole snapshot, or could run code.
    """
    data = _read(path, max_bytes)
    try:
        return _snapshot(plain(data), len(data))
    except ModelLoadError as error:
        raise ModelLoadError(f"{path}: can't be read as a memory snapshot: {error}") from error


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise UsageError(
                f"{path}: {size} bytes, and no more than {max_bytes} are read; record fewer "
                "events (_record_memory_history(max_entries=...)) or shorter stacks"
            )
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or one_line(error)}") from error


# -- checked parts of plain containers


def _field(holder: Any, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
    """A value of a dictionary, of the kind that it must be of."""
    if not isinstance(holder, dict):
        raise ModelLoadError(f"expected a dictionary with {key!r}, not a {type(holder).__name__}")
    value = holder.get(key, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise ModelLoadError(f"{key!r} is {type(value).__name__}, or missing")
    return value


def _size(holder: Any, key: str, default: Any = None) -> int:
    value: int = _field(holder, key, int, default)
    if not 0 <= value < 1 << 64:
        shown = value if value.bit_length() <= 128 else "a number of many digits"
        raise ModelLoadError(f"{key!r} is {shown}: no address or number of bytes")
    return value


# -- the whole, and its devices


def _snapshot(content: Any, nbytes: int) -> Snapshot:
    items, traces = _field(content, "segments", list), _field(content, "device_traces", list, [])
    if len(traces) > MAX_DEVICES:
        raise ModelLoadError(f"{len(traces)} devices")
    _check_size([*traces, *(_field(item, "blocks", list) for item in items)], nbytes)
    frames = _Frames()
    rows = [_row(item, frames) for item in items]
    count = max([len(traces), *(row.device + 1 for row in rows)])
    devices = tuple(
        _device(device, traces[device] if device < len(traces) else [], rows, frames)
        for device in range(count)
    )
    return Snapshot(devices, _settings(content.get("allocator_settings")))


def _check_size(lists: list[Any], nbytes: int) -> None:
    """Each event and block takes a byte of the file or more, if none is there twice.

    A pickle can name one list many times over, and become as large as it likes.
    """
    count = sum(len(items) for items in lists if isinstance(items, list))
    if count > nbytes:
        raise ModelLoadError(f"{count} events and blocks in {nbytes} bytes")


@dataclass(frozen=True, slots=True)
class _Row:
    """A segment, its device, whether it is of the ordinary pools, its blocks' stacks."""

    device: int
    public: bool
    segment: Segment
    stacks: dict[int, tuple[Frame, ...]]


def _device(device: int, trace: Any, rows: list[_Row], frames: _Frames) -> DeviceTrace:
    own = [row for row in rows if row.device == device]
    private = [row.segment for row in own if not row.public]
    public = sorted((row.segment for row in own if row.public), key=lambda s: s.address)
    for segment, following in pairwise(public):
        if segment.address + segment.size > following.address:
            raise ModelLoadError(f"the segments at {following.address:#x} overlap")
    entries = (entry for entry in _entries(trace, frames) if not _lies_in(entry, private))
    stacks = {address: stack for row in own if row.public for address, stack in row.stacks.items()}
    return DeviceTrace(device, tuple(entries), tuple(public), len(private), stacks)


def _lies_in(entry: Entry, segments: list[Segment]) -> bool:
    return any(s.address <= entry.address < s.address + s.size for s in segments)


# -- segments


def _row(item: Any, frames: _Frames) -> _Row:
    device = _size(item, "device")
    if device >= MAX_DEVICES:
        raise ModelLoadError(f"a segment of device {device}")
    pool = _field(item, "segment_pool_id", (tuple, list), _PUBLIC_POOL)
    segment = _segment(item)
    blocks = zip(segment.pieces, item["blocks"], strict=True)
    stacks = {
        piece.address: frames.stack(lines)
        for piece, block in blocks
        if piece.state is not State.FREE and (lines := _field(block, "frames", list, []))
    }
    return _Row(device, tuple(pool) == _PUBLIC_POOL, segment, stacks)


def _segment(item: Any) -> Segment:
    address = _size(item, "address")
    segment = Segment(
        address,
        _size(item, "total_size"),
        _size(item, "stream"),
        _field(item, "segment_type", str) == "small",
        _field(item, "is_expandable", bool, False),
        tuple(_pieces(_field(item, "blocks", list), address)),
    )
    if sum(piece.size for piece in segment.pieces) != segment.size:
        raise ModelLoadError(f"the blocks of segment {address:#x} do not fill it")
    return segment


def _pieces(blocks: list[Any], address: int) -> Iterator[Piece]:
    """The blocks of a segment; before torch 2.1 they do not tell their address."""
    for block in blocks:
        size, state = _size(block, "size"), _STATES.get(_field(block, "state", str))
        if state is None or not size or _size(block, "address", address) != address:
            raise ModelLoadError(f"the block at {address:#x} is not one")
        requested = 0 if state is State.FREE else _size(block, "requested_size", size)
        yield Piece(address, size, state, requested)
        address += size


# -- events


class _Frames:
    """Stacks, each line and each list of lines made once: files repeat them by the thousand."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int, str], Frame] = {}
        self._stacks: dict[int, tuple[Frame, ...]] = {}

    def stack(self, lines: list[Any]) -> tuple[Frame, ...]:
        """The frames of one event; the lists outlive this object, so their ids are unique."""
        known = self._stacks.get(id(lines))
        if known is None:
            known = self._stacks[id(lines)] = tuple(self._line(line) for line in lines)
        return known

    def _line(self, line: Any) -> Frame:
        key = (_field(line, "filename", str), _line_number(line), _field(line, "name", str))
        known = self._lines.get(key)
        if known is None:
            known = self._lines[key] = Frame(_printable(key[0]), key[1], _printable(key[2]))
        return known


def _line_number(line: Any) -> int:
    number: int = _field(line, "line", int)
    if abs(number) >= 1 << 31:  # an int of C, -1 where Python does not know it
        raise ModelLoadError("'line' is no number of a line")
    return number


def _printable(text: str) -> str:
    """The text without what would steer a terminal, or can't be written as UTF-8."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _entries(trace: Any, frames: _Frames) -> Iterator[Entry]:
    if not isinstance(trace, list):
        raise ModelLoadError(f"a device's trace is a {type(trace).__name__}")
    for item in trace:
        action = _ACTIONS.get(_field(item, "action", str))
        if action is not None:
            size = _size(item, "size")
            if size == 0 or (size > MAX_BLOCK_BYTES and action is not Action.OOM):
                raise ModelLoadError(f"an event {action} of {size} bytes")
            yield Entry(
                action,
                _size(item, "device_free" if action is Action.OOM else "addr"),
                size,
                _size(item, "stream"),
                frames.stack(_field(item, "frames", list, [])),
            )


# -- settings


def _settings(recorded: Any) -> AllocatorSettings:
    """The allocator's settings: the parsed ones, and what only their text tells.

    Source: ``allocator_settings`` in torch/csrc/cuda/Module.cpp. -1 is no limit.
    """
    if recorded is None:
        return AllocatorSettings()
    text = _field(recorded, "PYTORCH_CUDA_ALLOC_CONF", str, "")
    limit = _field(recorded, "max_split_size", int, -1)
    divisions = _field(recorded, "roundup_power2_divisions", dict, {})
    base = _from_text(text)
    return replace(
        base,
        max_split_bytes=limit if limit > 0 else None,
        garbage_collection_threshold=_threshold(recorded),
        expandable_segments=_field(recorded, "expandable_segments", bool, False),
        roundup_power2_divisions=_divisions(divisions) or base.roundup_power2_divisions,
    )


def _threshold(recorded: Any) -> float:
    value: float = _field(recorded, "garbage_collection_threshold", (int, float), 0.0)
    if not 0 <= value <= 1:
        raise ModelLoadError("'garbage_collection_threshold' is no share of the memory")
    return float(value)


def _from_text(text: str) -> AllocatorSettings:
    """The settings in a recorded text; one that this version can't read is left aside."""
    try:
        return parse_alloc_conf(text)
    except UsageError:
        return AllocatorSettings()


def _divisions(table: dict[Any, Any]) -> tuple[int, ...]:
    """``{'1': 0, '2': 0, ..., '32768': 0}``, by MiB."""
    keys = [str(1 << interval) for interval in range(INTERVALS)]
    return tuple(_size(table, key) for key in keys) if set(keys) <= table.keys() else ()
