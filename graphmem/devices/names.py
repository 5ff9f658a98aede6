"""Finding a GPU by what people call it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from graphmem.devices.gpu import Gpu
from graphmem.errors import UsageError

_NOISE = re.compile(r"nvidia|geforce|tesla|gi?b\b|[^a-z0-9]")
"""What tells no two GPUs apart: brands, units, and all that is neither letter nor digit."""


def find_gpu(name: str, gpus: Sequence[Gpu]) -> Gpu:
    """The GPU of a name, whatever its case, hyphens and spaces.

    Its own name counts first, then the full name that torch reports, then aliases. One that
    several GPUs share (``"A100"``: of 40 or of 80 GB) is no answer, as their capacity differs.

    Raises:
        UsageError: for an unknown name, with the nearest ones, and for one of several GPUs,
            with theirs.
    """
    key = _key(name)
    for names in (_own, _full, _aliases):
        found = [gpu for gpu in gpus if key and key in map(_key, names(gpu))]
        if len(found) == 1:
            return found[0]
        if found:
            several = ", ".join(gpu.name for gpu in found)
            raise UsageError(f"device {name!r} may be any of {several}: name one of them")
    near = _nearest(key, gpus)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(f"device {name!r} is not a known GPU{hint} (graphmem devices lists all)")


def _own(gpu: Gpu) -> Sequence[str]:
    return (gpu.name,)


def _full(gpu: Gpu) -> Sequence[str]:
    return (gpu.full_name,)


def _aliases(gpu: Gpu) -> Sequence[str]:
    return gpu.aliases


def _key(name: str) -> str:
    return _NOISE.sub("", name.lower())


def _nearest(key: str, gpus: Sequence[Gpu]) -> list[str]:
    names = {_key(text): gpu.name for gpu in gpus for text in (*gpu.aliases, gpu.name)}
    close = difflib.get_close_matches(key, list(names), n=3, cutoff=0.6)
    return list(dict.fromkeys(names[text] for text in close))
