"""cuDNN's backend API, called through ctypes: descriptors with attributes.

The numbers are those of the enumerations in cudnn_graph.h (cuDNN 9.24):
``cudnnBackendDescriptorType_t``, ``cudnnBackendAttributeName_t``,
``cudnnBackendAttributeType_t``; old ones never change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, NamedTuple

from graphmem.targets.cuda.cudnn.library import Library

_MESSAGE_BYTES = 4096


class CudnnError(Exception):
    """A call that cuDNN refused, in its own words. It never leaves this package."""


class Kind(IntEnum):
    """Kinds of descriptors."""

    CONVOLUTION = 1
    ENGINE = 2
    ENGINE_CONFIG = 3
    HEURISTICS = 4
    PLAN = 5
    FORWARD = 10
    FILTER_GRADIENT = 11
    DATA_GRADIENT = 12
    GRAPH = 15
    TENSOR = 17
    DEVICE = 38


class Value(NamedTuple):
    """A type of attribute values: its number, and what holds one in memory."""

    number: int
    ctype: Any


DATA_TYPE = Value(1, ctypes.c_int32)
BOOLEAN = Value(2, ctypes.c_bool)
INT64 = Value(3, ctypes.c_int64)
FLOAT = Value(4, ctypes.c_float)
DOUBLE = Value(5, ctypes.c_double)
CONVOLUTION_MODE = Value(7, ctypes.c_int32)
HEURISTICS_MODE = Value(8, ctypes.c_int32)
NUMERICAL_NOTE = Value(11, ctypes.c_int32)
DESCRIPTOR = Value(15, ctypes.c_void_p)
BEHAVIOR_NOTE = Value(19, ctypes.c_int32)
CHAR = Value(24, ctypes.c_char)


class Descriptor:
    """One descriptor; ``pointer`` is valid until its session ends."""

    __slots__ = ("functions", "pointer")

    def __init__(self, functions: ctypes.CDLL, pointer: ctypes.c_void_p) -> None:
        self.functions = functions
        self.pointer = pointer

    def set(self, attribute: int, value: Value, *elements: Any) -> Descriptor:
        """Set an attribute.

        Raises:
            CudnnError: if cuDNN refuses.
        """
        array = (value.ctype * len(elements))(*map(_raw, elements))
        status = self.functions.cudnnBackendSetAttribute(
            self.pointer, attribute, value.number, ctypes.c_int64(len(elements)), array
        )
        self._check(status, f"attribute {attribute}")
        return self

    def finalized(self) -> Descriptor:
        """The descriptor, checked by cuDNN and ready for use.

        Raises:
            CudnnError: if what it describes is wrong, or not supported.
        """
        self._check(self.functions.cudnnBackendFinalize(self.pointer), "finalize")
        return self

    def count(self, attribute: int, value: Value) -> int:
        """How many elements an attribute of a finalized descriptor has."""
        return self._get(attribute, value, 0, None)

    def get(self, attribute: int, value: Value, count: int = 1) -> list[Any]:
        """At most ``count`` elements of an attribute of a finalized descriptor."""
        array = (value.ctype * count)()
        written = self._get(attribute, value, count, array)
        return list(array)[:written]

    def fill(self, attribute: int, targets: Sequence[Descriptor]) -> Sequence[Descriptor]:
        """Let cuDNN write descriptors into ``targets``; the ones that it wrote."""
        array = (ctypes.c_void_p * len(targets))(*map(_raw, targets))
        return targets[: self._get(attribute, DESCRIPTOR, len(targets), array)]

    def _get(self, attribute: int, value: Value, count: int, array: Any) -> int:
        found = ctypes.c_int64()
        status = self.functions.cudnnBackendGetAttribute(
            self.pointer,
            attribute,
            value.number,
            ctypes.c_int64(count),
            ctypes.byref(found),
            array,
        )
        self._check(status, f"attribute {attribute}")
        return found.value

    def _check(self, status: int, what: str) -> None:
        if status:
            raise CudnnError(f"{what}: status {status}, {last_error(self.functions)}")


def last_error(functions: ctypes.CDLL) -> str:
    """What cuDNN says of the last error of this thread."""
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    functions.cudnnGetLastErrorString(message, ctypes.c_size_t(_MESSAGE_BYTES))
    return message.value.decode(errors="replace")


class Session:
    """Makes descriptors, and destroys them all at its end."""

    def __init__(self, library: Library) -> None:
        self._functions = library.functions
        self._made: list[Descriptor] = []

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for descriptor in reversed(self._made):
            self._functions.cudnnBackendDestroyDescriptor(descriptor.pointer)
        self._made.clear()

    def make(self, kind: Kind) -> Descriptor:
        """A new descriptor without attributes.

        Raises:
            CudnnError: if cuDNN does not know the kind.
        """
        pointer = ctypes.c_void_p()
        status = self._functions.cudnnBackendCreateDescriptor(int(kind), ctypes.byref(pointer))
        if status:
            raise CudnnError(f"{kind.name}: status {status}, {last_error(self._functions)}")
        self._made.append(Descriptor(self._functions, pointer))
        return self._made[-1]


def _raw(element: Any) -> Any:
    return element.pointer.value if isinstance(element, Descriptor) else element
