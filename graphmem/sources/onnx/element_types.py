"""ONNX's element types: how many bits one takes, and which torch dtype stands for it.

Source: onnx/onnx.in.proto, ``TensorProto.DataType`` (IR version 13).
"""

from __future__ import annotations

from enum import IntEnum, unique

import torch


@unique
class ElementType(IntEnum):
    """The numbers of ``TensorProto.DataType``."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    @property
    def bits(self) -> int:
        """The bits of one element, packed; of a string those of its object in ONNX Runtime."""
        return _BITS[self]

    @property
    def dtype(self) -> torch.dtype | None:
        """The torch dtype that stands for it; None for strings.

        Torch computes with no type of less than a byte: these are held one to a byte.
        """
        return _DTYPES.get(self)

    def nbytes(self, elements: int) -> int:
        """The bytes of so many elements, packed."""
        return -(-elements * self.bits // 8)

    @staticmethod
    def of(dtype: torch.dtype) -> ElementType:
        """The element type of a tensor of torch.

        Raises:
            KeyError: ONNX has no such type.
        """
        return _OF[dtype]


_E = ElementType
_BITS = {
    **dict.fromkeys((_E.UINT2, _E.INT2), 2),
    **dict.fromkeys((_E.UINT4, _E.INT4, _E.FLOAT4E2M1), 4),
    **dict.fromkeys((_E.FLOAT6E2M3, _E.FLOAT6E3M2), 6),
    **dict.fromkeys((_E.UINT8, _E.INT8, _E.BOOL, _E.FLOAT8E8M0), 8),
    **dict.fromkeys((_E.FLOAT8E4M3FN, _E.FLOAT8E4M3FNUZ, _E.FLOAT8E5M2, _E.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((_E.UINT16, _E.INT16, _E.FLOAT16, _E.BFLOAT16), 16),
    **dict.fromkeys((_E.FLOAT, _E.INT32, _E.UINT32), 32),
    **dict.fromkeys((_E.DOUBLE, _E.INT64, _E.UINT64, _E.COMPLEX64), 64),
    _E.COMPLEX128: 128,
    _E.STRING: 256,  # sizeof(std::string) of the compilers that ONNX Runtime is built with
    _E.UNDEFINED: 0,
}
_DTYPES = {
    _E.FLOAT: torch.float32,
    _E.UINT8: torch.uint8,
    _E.INT8: torch.int8,
    _E.UINT16: torch.uint16,
    _E.INT16: torch.int16,
    _E.INT32: torch.int32,
    _E.INT64: torch.int64,
    _E.BOOL: torch.bool,
    _E.FLOAT16: torch.float16,
    _E.DOUBLE: torch.float64,
    _E.UINT32: torch.uint32,
    _E.UINT64: torch.uint64,
    _E.COMPLEX64: torch.complex64,
    _E.COMPLEX128: torch.complex128,
    _E.BFLOAT16: torch.bfloat16,
    _E.FLOAT8E4M3FN: torch.float8_e4m3fn,
    _E.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    _E.FLOAT8E5M2: torch.float8_e5m2,
    _E.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    _E.FLOAT8E8M0: torch.float8_e8m0fnu,
    _E.UINT4: torch.uint8,
    _E.INT4: torch.int8,
    _E.UINT2: torch.uint8,
    _E.INT2: torch.int8,
    _E.FLOAT4E2M1: torch.float32,
    _E.FLOAT6E2M3: torch.float32,
    _E.FLOAT6E3M2: torch.float32,
}
_OF = {dtype: element for element, dtype in reversed(_DTYPES.items())}
