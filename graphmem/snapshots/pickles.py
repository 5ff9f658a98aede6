"""Reading a pickle that may be hostile: plain containers and nothing else.

A pickle is a program. Before it runs, each of its instructions is looked at: only those
that make numbers, text, lists, tuples, dictionaries and sets are allowed, no length may
reach beyond the end of the file, and no slot of the memo beyond what could have been put
there. Then Python's own unpickler runs it, with every class refused once more.

Source of the instructions and their arguments: ``pickletools`` of the standard library.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

from graphmem.errors import ModelLoadError

_PLAIN = {
    *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "MEMOIZE"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING"),
    *("EMPTY_LIST", "APPEND", "APPENDS", "LIST"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"),
    *("EMPTY_SET", "ADDITEMS", "FROZENSET"),
    *("BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT"),
}
_COUNTED = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_STOP, _LONG_BINPUT = ord("."), ord("r")

_REFUSED, _FIXED, _COUNT = 0, 1, 2


def _instructions() -> tuple[list[int], list[int]]:
    """For each instruction: refused, of fixed length or counted; and the bytes of its argument."""
    kind, width = [_REFUSED] * 256, [0] * 256
    for instruction in pickletools.opcodes:
        code = ord(instruction.code)
        if instruction.name not in _PLAIN:
            continue
        argument = instruction.arg
        if argument is not None and argument.n in _COUNTED:
            kind[code], width[code] = _COUNT, _COUNTED[argument.n]
        else:
            kind[code], width[code] = _FIXED, 0 if argument is None else argument.n
    return kind, width


_KIND, _WIDTH = _instructions()
_NAMES = {ord(instruction.code): instruction.name for instruction in pickletools.opcodes}


def plain(data: bytes) -> Any:
    """The plain containers that a pickle holds.

    Raises:
        ModelLoadError: if it is empty, cut short, or would make anything else.
    """
    _check(data)
    try:
        return _Plain(io.BytesIO(data)).load()
    except ModelLoadError:
        raise
    except (pickle.UnpicklingError, MemoryError, RecursionError, *_MALFORMED) as error:
        raise ModelLoadError(f"not a whole pickle: {type(error).__name__}") from error


_MALFORMED = (EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)


class _Plain(pickle.Unpickler):
    """An unpickler that makes no object of any class."""

    def find_class(self, module: str, name: str) -> Any:
        raise ModelLoadError(f"it wants the class {module}.{name}: no snapshot of PyTorch does")

    def persistent_load(self, pid: Any) -> Any:
        raise ModelLoadError("it refers to objects outside of it: no snapshot of PyTorch does")


def _check(data: bytes) -> None:
    """Look at every instruction.

    Raises:
        ModelLoadError: for one that is not plain, or a length or slot beyond the file.
    """
    at, end, kinds, widths = 0, len(data), _KIND, _WIDTH
    if end == 0:
        raise ModelLoadError("the file is empty")
    while at < end:
        code = data[at]
        width = widths[code]
        kind = kinds[code]
        argument = at + 1
        at = argument + width
        if kind != _FIXED:
            if kind == _REFUSED:
                raise _not_plain(code, argument - 1)
            at += int.from_bytes(data[argument:at], "little")
        elif code == _STOP:
            return
        elif code == _LONG_BINPUT and int.from_bytes(data[argument:at], "little") > end:
            raise ModelLoadError(f"byte {argument}: it asks for more memory than it can use")
    raise ModelLoadError("the file is cut short")


def _not_plain(code: int, at: int) -> ModelLoadError:
    name = _NAMES.get(code)
    if name is None:
        return ModelLoadError("the file is not a pickle, or is damaged")
    return ModelLoadError(
        f"byte {at} of the pickle ({name}) makes more than plain containers: "
        "no snapshot of PyTorch does"
    )
