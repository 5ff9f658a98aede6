"""The options of an analysis, from what a user gave: checked, and in one form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graphmem import devices, parallelism, techniques
from graphmem.allocator import parse_alloc_conf
from graphmem.errors import UsageError
from graphmem.options import LISTS, Mode, Options, Precision, Routing, Target, choice, parse_bytes
from graphmem.trace.adapters import LoraSettings, Packing
from graphmem.trace.optimizers import OptimizerChoice


def make_options(**values: Any) -> Options:
    """Options from what a user gave, checked.

    Raises:
        UsageError: naming the option, with the nearest choice.
    """
    values["mode"] = choice(Mode, values.get("mode", "training"), "mode")
    values["target"] = choice(Target, values.get("target", "cuda"), "target")
    if values.get("precision") is not None:
        values["precision"] = choice(Precision, values["precision"], "precision")
    if values.get("master_weights"):
        _check_master_weights(values["mode"], values.get("precision"))
    if values.get("grad", "no_grad") not in ("no_grad", "inference_mode", "enabled"):
        raise UsageError(f"grad: {values['grad']!r} is not no_grad, inference_mode or enabled")
    for name in ("accumulate", "steps", "trip_count"):
        if (value := values.get(name)) is not None and value < 1:
            raise UsageError(f"{name} must be 1 or more, not {value}")
    parse_alloc_conf(values.get("alloc_conf") or "")
    if values.get("device") is not None:
        values["device"] = devices.find(values["device"]).name
        if values["target"] is Target.CPU:
            raise UsageError(f"device {values['device']}: a GPU does not go with target cpu")
    if values.get("compile") and values["target"] is Target.ONNXRUNTIME:
        raise UsageError("compile: torch.compile goes with target cuda or cpu")
    values["routing"] = choice(Routing, values.get("routing", "balanced"), "routing")
    values["assume"] = _assumed(values.get("assume") or {})
    values["headroom"] = parse_bytes(values.get("headroom", 0), "headroom")
    if values.get("lora") is not None:
        values["lora"] = LoraSettings.of(values["lora"]).to_text()
    if values.get("quantize") is not None:
        values["quantize"] = str(Packing.of(values["quantize"]))
    for name in LISTS:
        values[name] = techniques.as_text(values.get(name))
    values["tp_plan"] = parallelism.plan_text(values.get("tp_plan"))
    options = Options(**values)
    techniques.check(options)
    parallelism.check(options)
    return options


def _assumed(given: Mapping[str, bool | int | float]) -> tuple[tuple[str, bool | int | float], ...]:
    """What the user says of lines, checked."""
    for line, value in given.items():
        if not re.fullmatch(r".+\.py:\d+", line):
            raise UsageError(f"assume: {line!r} is not a line such as model.py:12")
        if not isinstance(value, bool | int | float):
            raise UsageError(f"assume {line}: {value!r} is not a truth value or a number")
    return tuple(given.items())


def _check_master_weights(mode: Mode, precision: Precision | None) -> None:
    """Refuse master weights where there is nothing to keep a copy of, or no optimizer."""
    if mode is not Mode.TRAINING:
        raise UsageError("master weights: an inference has no optimizer; use mode training")
    if precision not in (Precision.BF16, Precision.FP16):
        named = "the model's own precision" if precision is None else f"precision {precision}"
        raise UsageError(
            f"master weights: with {named} the parameters are what the optimizer works on; "
            "use precision bf16 or fp16"
        )


def optimizer_name(optimizer: OptimizerChoice) -> str:
    """What an optimizer is called in the report."""
    return optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", "custom")
