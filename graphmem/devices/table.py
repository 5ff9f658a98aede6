"""The table of GPUs, ``gpus.csv`` in this package, as ``Gpu`` objects.

Its columns, and where they are from:

- ``capacity``: ``total_memory`` of ``torch.cuda.get_device_properties``, in the unit in which
  a public report prints it, and that report in ``capacity_source``: a print of the device
  properties (exact, or in whole ``MiB``), the first line of Ultralytics's programs
  (``CUDA:0 (NVIDIA L4, 22693MiB)``), or an out-of-memory message (``GPU 0 has a total
  capacity of 15.77 GiB``). A GPU without such a report is not in the table. They are of
  Linux; where only one of Windows is known, which keeps less back, the source says so. The
  driver's version decides how much is kept back: 3 MiB from one start to the next, and up to
  1 % from older drivers to those of 2026.
- ``multiprocessors``, ``l2_cache_kib``, ``sm_clock_mhz`` (the boost clock, of laptops at their
  highest power) and ``memory_clock_mhz``, as ``cudaDeviceGetAttribute`` gives them: prints of
  device properties where there are, else recalled from NVIDIA's data sheets and white papers
  and not looked up one by one. The clocks of GB200 and H100 NVL and the L2 of GH200, H100
  PCIe and H100 NVL are the least certain. They decide which plan cuDNN ranks first.
- ``compute_capability``: https://developer.nvidia.com/cuda-gpus.
- ``aliases``: other names, separated by bars; one that several GPUs have names none of them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib import resources

from graphmem.devices.context import context_of
from graphmem.devices.gpu import Gpu

_UNITS = {"B": (1, 0), "MiB": (1 << 20, 1 << 20), "GiB": (1 << 30, (1 << 30) // 200)}
"""Unit -> its bytes, and how far the printed number may be from the true one (0.005 GiB)."""


def load_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the table, in its order."""
    text = resources.files("graphmem").joinpath("devices/gpus.csv").read_text("utf-8")
    return tuple(map(_gpu, csv.DictReader(text.splitlines())))


def _gpu(row: Mapping[str, str]) -> Gpu:
    major, minor = map(int, row["compute_capability"].split("."))
    capacity, error = _capacity(row["capacity"])
    context, source = context_of(_model(row["name"]), (major, minor))
    return Gpu(
        name=row["name"],
        compute_capability=(major, minor),
        capacity_bytes=capacity,
        multiprocessors=int(row["multiprocessors"]),
        l2_cache_bytes=int(row["l2_cache_kib"]) * 1024,
        sm_clock_khz=int(row["sm_clock_mhz"]) * 1000,
        memory_clock_khz=int(row["memory_clock_mhz"]) * 1000,
        context_bytes=context,
        context_source=source,
        full_name=row["full_name"],
        aliases=tuple(filter(None, row["aliases"].split("|"))),
        kind=row["kind"],
        capacity_source=row["capacity_source"],
        capacity_error_bytes=error,
    )


def _capacity(text: str) -> tuple[int, int]:
    """The bytes of ``79.25 GiB``, and how far they may be from the true ones."""
    number, unit = text.split()
    size, error = _UNITS[unit]
    whole, _, decimals = number.partition(".")
    return int(whole + decimals) * size // 10 ** len(decimals), error


def _model(name: str) -> str:
    """A name without its memory and form: ``A100`` of ``A100-PCIe-80GB``."""
    return name.split("-")[0]
