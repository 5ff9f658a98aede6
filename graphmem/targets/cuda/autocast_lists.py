"""Which operators CUDA's autocast casts, and how: read from torch's own header.

``include/ATen/autocast_mode.h`` of the installed torch holds the lists as macros, one a
policy, with one ``_(name)`` or ``_(name, overload)`` an operator. It is read when a trace
first needs it, so the lists are always those of the user's own torch. The few operators
that CUDA casts beside them are in aten/src/ATen/autocast_mode.cpp and
aten/src/ATen/cudnn/AutocastRNN.cpp, see ``BESIDE_THE_HEADER``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from enum import Enum, unique
from pathlib import Path
from types import MappingProxyType

import torch

from graphmem.errors import InvariantError, UsageError

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


@unique
class Policy(Enum):
    """What autocast does with an operator: ``CastPolicy`` of the header, and two more."""

    LOWER_PRECISION = "lower_precision_fp"
    """All inputs in the dtype of autocast."""
    FP32 = "fp32"
    """All inputs in fp32."""
    FP32_SET_OPT_DTYPE = "fp32_set_opt_dtype"
    """``dtype=float32``, unless the caller gave one."""
    FP32_APPEND_DTYPE = "fp32_append_dtype"
    """The overload with a dtype, which is fp32."""
    PROMOTE = "promote"
    """All inputs in the widest of their dtypes."""
    BANNED = "banned"
    """An error."""
    CUDNN_RNN = "cudnn_rnn"
    """All inputs in the dtype of autocast, the weights in one flat buffer."""


_MACROS = {
    "AT_FORALL_LOWER_PRECISION_FP": Policy.LOWER_PRECISION,
    "AT_FORALL_FP32": Policy.FP32,
    "AT_FORALL_FP32_SET_OPT_DTYPE": Policy.FP32_SET_OPT_DTYPE,
    "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE": Policy.FP32_APPEND_DTYPE,
    "AT_FORALL_PROMOTE": Policy.PROMOTE,
}

BESIDE_THE_HEADER: Mapping[str, Policy] = MappingProxyType(
    {
        "aten::cudnn_convolution": Policy.LOWER_PRECISION,
        "aten::cudnn_convolution_transpose": Policy.LOWER_PRECISION,
        "aten::linalg_matrix_sqrth": Policy.FP32,  # torch 2.14
        "aten::binary_cross_entropy": Policy.BANNED,
        "aten::_cudnn_rnn": Policy.CUDNN_RNN,  # registered by CUDA builds only
    }
)
"""Source: aten/src/ATen/autocast_mode.cpp, ``TORCH_LIBRARY_IMPL(aten, Autocast, m)``, and
aten/src/ATen/cudnn/AutocastRNN.cpp."""


@functools.cache
def policies() -> Mapping[str, Policy]:
    """The policy of every operator that CUDA's autocast casts, as ``aten::pow.Scalar``.

    Raises:
        UsageError: if the installed torch has no such header.
    """
    try:
        text = HEADER.read_text("utf-8")
    except OSError as error:
        raise UsageError(
            f"autocast on CUDA: the installed torch lacks {HEADER.name}, which lists the "
            "operators that it casts; install torch from its wheel"
        ) from error
    known = {
        name: policy
        for name, policy in BESIDE_THE_HEADER.items()
        if torch._C._dispatch_has_kernel(name)
    }
    return MappingProxyType({**read(text), **known})


def read(header: str) -> dict[str, Policy]:
    """The policies that a header's macros list.

    Raises:
        InvariantError: if a macro is not there, or lists nothing.
    """
    found: dict[str, Policy] = {}
    for macro, policy in _MACROS.items():
        names = _names(_definition(macro, header))
        if not names:
            raise InvariantError(f"{HEADER.name}: {macro} lists no operator")
        found.update(dict.fromkeys(names, policy))
    return found


def _definition(macro: str, header: str) -> str:
    """What a macro stands for: to the first line that does not end in a backslash."""
    match = re.search(rf"#define {macro}\(_\)((?:.*\\\n)*.*)", header)
    if match is None:
        raise InvariantError(f"{HEADER.name}: no {macro}")
    return match[1]


def _names(definition: str) -> list[str]:
    """The operators of a macro: ``_(pow, Scalar)``, or a quoted ``"norm.Scalar"``."""
    quoted = re.findall(r'"([\w.]+)"', definition)
    plain = re.findall(r"_\((\w+)(?:, *(\w+))?\)", definition)
    dotted = [f"{name}.{overload}" if overload else name for name, overload in plain]
    return [f"aten::{name}" for name in quoted or dotted]
