"""ultralytics: every model that the package has a configuration of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphmem.options import Mode
from graphmem.sources import InputSpec
from graphmem.sources.building import Built
from graphmem.sources.inputs import ModelInputs
from tools.sweeping.case import BATCH, BuiltCase

_SIDE = 256


def names() -> list[str]:
    """The names of the configurations' files."""
    import ultralytics

    folder = Path(ultralytics.__file__).parent / "cfg/models"
    return sorted(file.stem for file in folder.rglob("*.yaml"))


def case(name: str) -> BuiltCase:
    """The model of a configuration, of its smallest scale, of images [B, 3, 256, 256]."""

    def build(mode: Mode) -> Built:
        return _model(name), ModelInputs((InputSpec((BATCH, 3, _SIDE, _SIDE)),))

    return BuiltCase(name, build)


def _model(name: str) -> Any:
    from ultralytics.nn import tasks

    config = tasks.yaml_model_load(f"{name}.yaml")
    classes = {
        "classify": tasks.ClassificationModel,
        "segment": tasks.SegmentationModel,
        "semantic": tasks.SemanticSegmentationModel,
        "depth": tasks.DepthModel,
        "pose": tasks.PoseModel,
        "obb": tasks.OBBModel,
        "detect": tasks.DetectionModel,
    }
    of_name = {
        "rtdetr": tasks.RTDETRDetectionModel,
        "world": tasks.WorldModel,
        "yoloe": tasks.YOLOESegModel if name.endswith("-seg") else tasks.YOLOEModel,
    }
    known = next((cls for part, cls in of_name.items() if part in name), None)
    return (known or classes[tasks.guess_model_task(config)])(config, verbose=False)
