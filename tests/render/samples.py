"""Reports made by hand: numbers that hold together, without an analysis behind them."""

from __future__ import annotations

from typing import Any

from graphmem.report import (
    Compiled,
    CopyItem,
    Fit,
    Fits,
    GrowthItem,
    Holder,
    InputInfo,
    OutOfMemory,
    Peak,
    Range,
    Report,
    Step,
    Subject,
    TimelinePoint,
    UnknownItem,
)
from graphmem.schedule import TOP_LEVEL
from tests.render.llama import llama_holders, llama_shares
from tests.render.parts import GIB, MIB, breakdown_of, share, step

H200 = 150_109_880_320


def training_report(blocks: int = 32) -> Report:
    """A training run on a GPU, with everything that a report can have."""
    shares = llama_shares(blocks)
    total = sum(each.layer.live_at_peak_bytes for each in shares)
    parameters = sum(each.layer.parameters for each in shares)
    place = f"model.layers.{blocks - 1}.mlp.down_proj"
    source = "transformers/models/llama/modeling_llama.py:175"
    return Report(
        subject=Subject(
            kind="hf",
            name="hf:llama-3.1-8b/config.json",
            parameters=parameters,
            trainable_parameters=parameters - 128256 * 4096,
            inputs=(
                InputInfo("input_ids", (1, 2048), "int64"),
                InputInfo("labels", (1, 2048), "int64"),
            ),
        ),
        created_from={
            "mode": "training",
            "target": "cuda",
            "precision": "bf16",
            "optimizer": "adamw",
            "foreach": None,
            "accumulate": 4,
            "checkpoint": "model.layers.*",
            "steps": 2,
            "strict": False,
        },
        peak=Peak(
            requested_bytes=total - 12_345_600,
            allocated_bytes=total,
            reserved_bytes=total + 700 * MIB,
            device_bytes=(total + 1150 * MIB, total + 1300 * MIB),
            step=2,
            phase="backward",
            op="aten.mm",
            op_index=5123,
            module=place,
            source=source,
        ),
        steps=(
            step(1, total, forward=40, backward=55, optimizer=60),
            step(2, total, forward=90, backward=100, optimizer=95),
        ),
        breakdown=breakdown_of(shares),
        layers=tuple(each.layer for each in shares),
        holders=llama_holders(place, source),
        unknown=(
            UnknownItem(
                what="the workspace that cuBLASLt chooses for a batched product",
                where="aten.bmm of model.layers.0.self_attn (modeling_llama.py:201)",
                assumed="the largest that its heuristic may ask for on this architecture",
                bytes=32 * MIB,
            ),
            UnknownItem(
                what="a size that depends on data",
                where="aten.nonzero of (top level)",
                assumed="every element is non-zero",
                bytes=None,
            ),
        ),
        idle_bytes=2048 * 128256 * 4,
        last_use_peak_bytes=total - 2 * GIB,
        graphmem="0.1.0",
        torch="2.13.0",
        device={"name": "H200", "arch": "sm_90", "capacity_bytes": H200},
        compiled=Compiled(
            requested_bytes=Range(total - 4 * GIB, total - GIB),
            allocated_bytes=Range(total - 4 * GIB, total - GIB),
            reserved_bytes=Range(total - 3 * GIB, total),
            saved_bytes=9 * GIB,
            eager_saved_bytes=12 * GIB,
            graphs=2,
            step=2,
            phase="backward",
            op="aten.mul.Tensor",
            module=place,
            source=source,
        ),
        growth=(
            GrowthItem(
                kind="graph",
                per="step",
                bytes=2 * GIB,
                tensors=301,
                times=3,
                holder="losses",
                shape=(),
                dtype="float32",
                op="aten.nll_loss_forward",
                module=TOP_LEVEL,
                source="train.py:31",
            ),
            GrowthItem(
                kind="tensors",
                per="step",
                bytes=512,
                tensors=1,
                times=3,
                holder=None,
                shape=(),
                dtype="float32",
                op=None,
                module=place,
                source=None,
            ),
            GrowthItem(
                kind="optimizer_states",
                per="step",
                bytes=40 * MIB,
                tensors=40,
                times=2,
                holder=None,
                shape=(262_144,),
                dtype="float32",
                op="aten.sub",
                module=TOP_LEVEL,
                source=None,
            ),
            GrowthItem(
                kind="cache",
                per="turn",
                bytes=4096,  # 8*128*2 B for each of two tensors
                tensors=2,
                times=63,
                holder=None,
                shape=(1, 8, 2048, 128),
                dtype="bfloat16",
                op="aten.cat",
                module="model.layers.0.self_attn",
                source="cache_utils.py:136",
            ),
        ),
        copies=(
            CopyItem("parameters", 2 * parameters, 291, 1, "ema", "train.py:40"),
            CopyItem("gradients", 4 * parameters, 582, 2, None, None),
        ),
        timeline=(
            TimelinePoint(0, "forward", "aten.embedding", "model.embed_tokens", total - 1, None),
            TimelinePoint(1, "backward", "aten.mm", place, total, total + 700 * MIB),
        ),
        fits=Fits(
            {
                "H200": Fit("H200", True, H200 - total - 1300 * MIB, None),
                "RTX 3080": Fit(
                    "RTX 3080",
                    False,
                    10 * GIB - total,
                    OutOfMemory(1, "forward", "aten.mm", 40, place, source, 501 * MIB),
                    ("with the kernels of H200 (sm_90)",),
                ),
            }
        ),
    )


def inference_report() -> Report:
    """An inference on the CPU: no allocator model, no steps, nothing unknown."""
    picture = 8 * 3 * 224 * 224 * 4
    quiet: dict[str, Any] = {"training": False, "forward_peak_bytes": 80 * MIB}
    shares = [
        share("conv1", "Conv2d", 9_408, output_bytes=25_690_112, temporaries=25_690_112, **quiet),
        share("bn1", "BatchNorm2d", 128, output_bytes=25_690_112, buffers=520, **quiet),
        share("relu", "ReLU", 0, output_bytes=25_690_112, calls=1, **quiet),
        share("layer1.0.conv1", "Conv2d", 36_864, output_bytes=6_422_528, **quiet),
        share("layer1.0.bn1", "BatchNorm2d", 128, output_bytes=6_422_528, buffers=520, **quiet),
        share("layer1.0.relu", "ReLU", 0, output_bytes=6_422_528, calls=2, **quiet),
        share("fc", "Linear", 513_000, output_bytes=32_000, **quiet),
        share(TOP_LEVEL, "ResNet", 0, inputs=picture, **quiet),
    ]
    total = sum(each.layer.live_at_peak_bytes for each in shares)
    parameters = sum(each.layer.parameters for each in shares)
    return Report(
        subject=Subject(
            kind="torchvision",
            name="torchvision:tiny_resnet",
            parameters=parameters,
            trainable_parameters=parameters,
            inputs=(InputInfo("x", (8, 3, 224, 224), "float32"),),
        ),
        created_from={"mode": "inference", "target": "cpu", "precision": None, "steps": 1},
        peak=Peak(
            requested_bytes=total,
            allocated_bytes=total,
            reserved_bytes=None,
            device_bytes=None,
            step=1,
            phase="forward",
            op="aten.convolution",
            op_index=0,
            module="conv1",
            source="torchvision/models/resnet.py:268",
        ),
        steps=(Step(1, total, None, {"forward": total, "backward": None, "optimizer": None}),),
        breakdown=breakdown_of(shares),
        layers=tuple(each.layer for each in shares),
        holders=(
            Holder(
                bytes=25_690_112,  # 8*64*112*112 f32
                shape=(8, 64, 112, 112),
                dtype="float32",
                category="temporaries",
                op="aten.convolution",
                module="conv1",
                source="torchvision/models/resnet.py:268",
                born=0,
                last_use=1,
                freed=1,
                idle_bytes=0,
            ),
            Holder(
                bytes=picture,
                shape=(8, 3, 224, 224),
                dtype="float32",
                category="inputs",
                op=None,
                module=TOP_LEVEL,
                source=None,
                born=-1,
                last_use=0,
                freed=None,
                idle_bytes=0,
            ),
        ),
        unknown=(),
        idle_bytes=0,
        last_use_peak_bytes=total,
        graphmem="0.1.0",
        torch="2.13.0",
    )
