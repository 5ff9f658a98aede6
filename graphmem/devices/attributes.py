"""A GPU's CUDA device attributes, as far as its compute capability decides them.

Source: CUDA C++ Programming Guide, "Compute Capabilities", the table "Technical
Specifications per Compute Capability": resident blocks and threads of a multiprocessor,
shared memory of a block with ``cudaFuncAttributeMaxDynamicSharedMemorySize`` ("opt-in"), and
what is the same for all of them: registers, warps, the sizes of blocks and grids. From
SM 8.0 on the system keeps 1 KiB of a block's shared memory to itself (same guide, "Shared
Memory" of compute capability 8.x).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from graphmem.devices.gpu import Gpu
from graphmem.errors import InvariantError


class _Limits(NamedTuple):
    """Of one multiprocessor, and of the shared memory that a block may ask for."""

    blocks: int
    threads: int
    optin_kib: int


_LIMITS = {
    (6, 0): _Limits(32, 2048, 48),
    (6, 1): _Limits(32, 2048, 48),
    (7, 0): _Limits(32, 2048, 96),
    (7, 2): _Limits(32, 2048, 96),
    (7, 5): _Limits(16, 1024, 64),
    (8, 0): _Limits(32, 2048, 163),
    (8, 6): _Limits(16, 1536, 99),
    (8, 7): _Limits(16, 1536, 163),
    (8, 9): _Limits(24, 1536, 99),
    (9, 0): _Limits(32, 2048, 227),
    (10, 0): _Limits(32, 2048, 227),
    (10, 3): _Limits(32, 2048, 227),
    (11, 0): _Limits(24, 1536, 227),
    (12, 0): _Limits(24, 1536, 99),
    (12, 1): _Limits(24, 1536, 99),
}


def attributes(gpu: Gpu) -> dict[str, Any]:
    """The GPU under the keys that cuDNN gives CUDA's attributes in JSON; sizes in bytes.

    These are the keys of ``CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION``. What says nothing of
    the model (bus, driver) is that of a first GPU under CUDA 13.

    Raises:
        InvariantError: for a compute capability that the table above lacks.
    """
    limits = _LIMITS.get(gpu.compute_capability)
    if limits is None:
        raise InvariantError(f"{gpu.name}: the limits of SM {gpu.sm / 10} are not in _LIMITS")
    return {
        "maxGridSize": [2**31 - 1, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536,
        "multiProcessorCount": gpu.multiprocessors,
        "smCountOrigin": 0,  # all of them, not a MIG slice
        "warpSize": 32,
        "maxSharedMemoryPerBlock": 48 * 1024,
        "maxSharedMemoryPerBlockOptin": limits.optin_kib * 1024,
        "reservedSharedMemoryPerBlock": 1024 if gpu.sm >= 80 else 0,
        "maxRegistersPerSM": 65536,
        "maxCtasPerSM": limits.blocks,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": limits.threads,
        "pciDeviceId": 0,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "smClockRateKHz": gpu.sm_clock_khz,
        "memClockRateKHz": gpu.memory_clock_khz,
        "l2CacheSize": gpu.l2_cache_bytes,
        "deviceName": gpu.full_name or gpu.name,
        "deviceVer": 10 * gpu.sm,  # 800 for SM 8.0
        "driverVer": 13000,
        "cudaDeviceId": 0,
        "totalGlobalMem": gpu.capacity_bytes,
    }
