"""Pickles that would do harm are refused before they run; damaged ones in one line."""

from __future__ import annotations

import collections
import os
import pickle
import struct
from typing import Any

import pytest

from graphmem.errors import ModelLoadError
from graphmem.snapshots.pickles import plain

CONTENT: dict[str, Any] = {
    "text": "a" * 300,
    "numbers": [0, 1, 300, 70_000, 1 << 40, -1, 1.5],
    "rest": [None, True, False, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), b"bytes", {1, 2}],
    "nested": {"a": [{"b": []}]},
}


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/graphmem-was-here",)


class _State:
    def __init__(self) -> None:
        self.x = 1


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_containers_are_read(protocol: int) -> None:
    content = dict(CONTENT)
    if protocol < 4:
        content["rest"] = CONTENT["rest"][:-2]  # bytes and sets are calls of classes there
    assert plain(pickle.dumps(content, protocol)) == content


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value", [_Evil(), _State(), collections.OrderedDict(a=1), os.system, 1j, bytearray(b"a")]
)
def test_everything_else_is_refused(value: object, protocol: int) -> None:
    with pytest.raises(ModelLoadError, match="makes more than plain containers"):
        plain(pickle.dumps([1, 2, value], protocol))


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.",  # GLOBAL and REDUCE, the classic
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",  # STACK_GLOBAL
        b"(ios\nsystem\n.",  # INST
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x02\x82\x01.",  # EXT1
        b"Psomething\n.",  # PERSID
        b"\x80\x02K\x01Q.",  # BINPERSID
        b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00a.",  # BYTEARRAY8
        b"\x80\x05\x97.",  # NEXT_BUFFER
        pickle.dumps([1], 0),  # text instructions: nothing of PyTorch's
    ],
)
def test_instructions_that_are_not_plain_are_refused(data: bytes) -> None:
    with pytest.raises(ModelLoadError, match="makes more than plain containers"):
        plain(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"abc.",  # text of 4 EiB
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".",  # bytes of 1 TiB
        b"\x80\x02X" + struct.pack("<I", 0xFFFFFFFF) + b".",
        b"\x80\x02\x8b" + struct.pack("<I", 0x7FFFFFFF) + b".",  # a number of 2 GiB
        b"\x80\x02]q",  # no argument
        b"\x80\x02]",  # no end
        pickle.dumps(CONTENT)[:-1],
        pickle.dumps(CONTENT)[:100],
    ],
)
def test_what_reaches_beyond_the_end_is_cut_short(data: bytes) -> None:
    with pytest.raises(ModelLoadError, match="cut short"):
        plain(data)


def test_a_memo_slot_beyond_the_file_is_refused() -> None:
    data = b"\x80\x02]r" + struct.pack("<I", 0x0FFFFFFF) + b"."
    with pytest.raises(ModelLoadError, match="more memory than it can use"):
        plain(data)


@pytest.mark.parametrize(
    "data",
    [
        b".",  # nothing on the stack
        b"\x80\x02h\x05.",  # a memo slot that is not there
        b"\x80\x02e.",  # no mark
        b"\x80\x02K\x01K\x02a.",  # append to a number
        b"\x80\x63N.",  # protocol 99
        b"\x80\x02}(K\x01u.",  # an odd number of items
        b"\x80\x02}(]K\x01u.",  # a list as a key
        b"\x80\x02X\x01\x00\x00\x00\xff.",  # not UTF-8
    ],
)
def test_a_damaged_pickle_is_one_line(data: bytes) -> None:
    with pytest.raises(ModelLoadError, match="not a whole pickle") as caught:
        plain(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("data", "message"), [(b"", "empty"), (b"\xff\xd8\xff", "not a pickle")])
def test_a_file_that_is_no_pickle_says_so(data: bytes, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        plain(data)
