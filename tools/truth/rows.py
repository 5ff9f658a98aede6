"""The rows of ``truth/measured.csv``: one measurement each."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, fields
from pathlib import Path

TRUTH = Path(__file__).resolve().parents[3] / "shared" / "truth"
"""Where the measurements lie, beside the repository; absent in a plain clone."""

UNITS = {
    "bytes": 1,
    "MiB": 2**20,
    "GiB": 2**30,
    "GB": 10**9,
    "GB(1e9)": 10**9,
    "GB (1e9)": 10**9,
    "MiB per sample": 2**20,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement as the file has it, all columns as text; ``line`` counts from 2."""

    line: int
    source: str
    model: str
    constructor: str
    batch: str
    shape: str
    dtype: str
    optimizer: str
    checkpointing: str
    attention: str
    gpu: str
    torch: str
    metric: str
    value: str
    unit: str
    notes: str

    @property
    def is_lower_bound(self) -> bool:
        """Whether only more than the value is known: the run was out of memory."""
        return self.value.startswith(">")

    @property
    def measured(self) -> float:
        """The measurement in bytes (or bytes per sample)."""
        return float(self.value.lstrip(">")) * UNITS[self.unit]

    @property
    def resolution(self) -> float:
        """Half a unit of the last digit printed, in bytes."""
        _, _, decimals = self.value.partition(".")
        return 0.5 * 10.0 ** -len(decimals) * UNITS[self.unit]

    @property
    def peers(self) -> dict[str, int]:
        """What others predicted for the same run, in bytes: ``xMem=123`` in the notes."""
        return {name: int(value) for name, value in re.findall(r"(\w+)=(\d{6,})", self.notes)}


def read(folder: Path = TRUTH) -> list[Row]:
    """Every row of the file.

    Raises:
        FileNotFoundError: where the measurements are absent.
    """
    columns = [field.name for field in fields(Row)][1:]
    with (folder / "measured.csv").open(newline="", encoding="utf-8") as file:
        return [
            Row(line, *(values[column] for column in columns))
            for line, values in enumerate(csv.DictReader(file), 2)
        ]
