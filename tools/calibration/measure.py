"""Cases run for real on the GPU of this machine, in this process."""

from __future__ import annotations

import gc
from typing import Any

import torch

from tools.calibration.case import Case


def machine() -> dict[str, Any]:
    """What the measurements are of: GPU, torch, CUDA, cuDNN, driver."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "compute_capability": [properties.major, properties.minor],
        "capacity_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def measure(case: Case) -> dict[str, Any]:
    """The peaks of every step of a case, in bytes, each from where the step begins.

    ``before_bytes`` and ``after_bytes`` are what is allocated at a step's ends. An earlier
    case of the process leaves neither cuBLAS workspaces nor free segments; ``base_bytes`` is
    what it left all the same.
    """
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    base_bytes = torch.cuda.memory_allocated()
    step = case.make("cuda")
    steps = []
    returned = None
    for _ in range(case.steps):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        returned = step()
        torch.cuda.synchronize()
        steps.append(
            {
                "before_bytes": before,
                "allocated_bytes": torch.cuda.max_memory_allocated(),
                "reserved_bytes": torch.cuda.max_memory_reserved(),
                "after_bytes": torch.cuda.memory_allocated(),
            }
        )
    del returned, step
    extra = case.extra() if case.extra else {}
    return {"base_bytes": base_bytes, "steps": steps, **({"extra": extra} if extra else {})}


def context() -> dict[str, int]:
    """What the process holds outside the allocator, in bytes, as more libraries load."""
    stages = {}

    def note(stage: str) -> None:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        stages[stage] = total - free - torch.cuda.memory_reserved()

    torch.zeros(1, device="cuda")
    note("first tensor")
    x = torch.randn(512, 512, device="cuda", requires_grad=True)
    (x @ x).sum().backward()
    note("product")
    convolution = torch.nn.Conv2d(3, 16, 3).cuda()
    convolution(torch.randn(4, 3, 64, 64, device="cuda")).sum().backward()
    note("convolution")
    torch.fft.rfft(torch.randn(512, 512, device="cuda"))
    note("fft")
    torch.randn(1 << 20, device="cuda").sort()
    note("sort")
    return stages
