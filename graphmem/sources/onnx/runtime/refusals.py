"""What ONNX Runtime's errors say, without what they say of ONNX Runtime itself."""

from __future__ import annotations

import re

from graphmem.errors import one_line

_STATUS = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_LOADING = re.compile(r"^Load model from .*? failed:")
_PLACE = re.compile(r"\S+\.(?:cc|cpp|h|hpp|cu|cuh):\d+ ")
_QUALIFIERS = re.compile(r"^(?: (?:const|noexcept|&&?|\[with [^]]*\]))*\s*")


def reason(error: BaseException) -> str:
    """Why ONNX Runtime refuses a model or its inputs, in one line.

    Its messages begin with a status and, where a check of its own failed, name the place in its
    source: a file, a line and a function, written as the compiler does.
    Source: ``CodeLocation::ToString`` in include/onnxruntime/core/common/code_location.h.
    """
    text = _LOADING.sub("", _STATUS.sub("", one_line(error)))
    place = _PLACE.search(text)
    if place is None:
        return text
    return text[: place.start()] + _after_function(
        text[place.end() :].replace("operator()", "operator")
    )


def _after_function(text: str) -> str:
    """What follows a function: a plain name, or a signature with its arguments in parentheses."""
    head, space, rest = text.partition(" ")
    opened = text.find("(")
    if "(" not in head and not _is_signature(text[: max(opened, 0)]):
        return rest if space else text
    depth = 0
    for at in range(opened, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if text[at] == ")" and depth == 0 and text[at + 1 : at + 2] not in ("(", ":", ">"):
            return _QUALIFIERS.sub("", text[at + 1 :])
    return text


def _is_signature(head: str) -> bool:
    """Whether words before a parenthesis are a return type and a qualified name."""
    return "::" in head.rpartition(" ")[2]
