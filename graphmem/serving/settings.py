"""How ONNX Runtime serves a model: its provider and that one's options, by their own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique

from graphmem.allocator.bfc import ArenaSettings, ExtendStrategy
from graphmem.errors import UsageError
from graphmem.options import nearest, parse_bytes
from graphmem.ort import RunSettings


@unique
class Provider(StrEnum):
    """ONNX Runtime's execution providers that are planned for."""

    CPU = "cpu"
    CUDA = "cuda"


@unique
class Search(StrEnum):
    """``cudnn_conv_algo_search``: where cuDNN looks for a convolution's plan."""

    EXHAUSTIVE = "EXHAUSTIVE"
    HEURISTIC = "HEURISTIC"
    DEFAULT = "DEFAULT"


@dataclass(frozen=True, slots=True)
class CudaSettings:
    """What the CUDA provider is asked for, with its defaults.

    ``reserve_weights`` is the session's ``session.use_device_allocator_for_initializers``;
    ``given`` are the options as they were given, in ONNX Runtime's own words.
    Source: ``CUDAExecutionProviderInfo`` in
    onnxruntime/core/providers/cuda/cuda_execution_provider_info.h; ``get_provider_options`` of
    1.31.1 gives the same defaults.
    """

    search: Search = Search.EXHAUSTIVE
    max_workspace: bool = True
    tf32: bool = True
    pad_to_nc1d: bool = False
    prefer_nhwc: bool = False
    cuda_graph: bool = False
    reserve_weights: bool = False
    given: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How the model is served.

    ``optimize``: the graph is the one that ONNX Runtime makes of the file. ``threads`` work on
    one operator (``intra_op_num_threads``): some kernels have a buffer for each. ``packs``:
    kernels pack their weights when the session begins (``session.disable_prepacking`` off); if
    not, and with memory patterns, all weights of a graph lie in one block of the arena
    (``SessionState::FinalizeSessionStateImpl`` in onnxruntime/core/framework/session_state.cc).
    ``runs`` with the same inputs; from the second on there is a memory pattern. ``has_amx``: the
    processor has AMX, whose kernels pack some weights otherwise.
    """

    optimize: bool = True
    threads: int = 1
    packs: bool = True
    runs: int = 2
    run: RunSettings = field(default_factory=RunSettings)
    provider: Provider = Provider.CPU
    cuda: CudaSettings = field(default_factory=CudaSettings)
    has_amx: bool = False


STRATEGIES = tuple(map(str, ExtendStrategy))


def strategy_of(text: str, option: str) -> ExtendStrategy:
    """``arena_extend_strategy``.

    Raises:
        UsageError: there is no such strategy.
    """
    return ExtendStrategy(_one_of(text, STRATEGIES, option))


def with_options(settings: ServeSettings, options: Iterable[str]) -> ServeSettings:
    """The settings with options of the CUDA provider, each ``NAME=VALUE``.

    Raises:
        UsageError: there is no such option, it has no such value, or it can't be planned for.
    """
    for text in options:
        name, has_value, value = text.partition("=")
        if not has_value:
            raise UsageError(f"--ort-option {text}: give NAME=VALUE, such as gpu_mem_limit=4GiB")
        if name in _REFUSED:
            raise UsageError(f"--ort-option {name}: {_REFUSED[name]}")
        if name not in _SETTERS:
            known = sorted(_SETTERS)
            raise UsageError(
                f"--ort-option {name}: not an option of ONNX Runtime's CUDA provider"
                f"{nearest(name, known)}; there are {', '.join(known)}"
            )
        settings = _SETTERS[name](settings, value.strip(), f"--ort-option {name}")
        given = (*settings.cuda.given, (name, value.strip()))
        settings = replace(settings, cuda=replace(settings.cuda, given=given))
    return settings


Setter = Callable[[ServeSettings, str, str], ServeSettings]


def _one_of(text: str, names: Iterable[str], option: str) -> str:
    names = tuple(names)
    if text not in names:
        raise UsageError(f"{option} {text}: not one of {', '.join(names)}{nearest(text, names)}")
    return text


def _limit(settings: ServeSettings, value: str, option: str) -> ServeSettings:
    return _with_arena(settings, replace(settings.run.arena, limit=parse_bytes(value, option)))


def _strategy(settings: ServeSettings, value: str, option: str) -> ServeSettings:
    strategy = strategy_of(value, option)
    return _with_arena(settings, replace(settings.run.arena, strategy=strategy))


def _with_arena(settings: ServeSettings, arena: ArenaSettings) -> ServeSettings:
    return replace(settings, run=replace(settings.run, arena=arena))


def _search(settings: ServeSettings, value: str, option: str) -> ServeSettings:
    search = Search(_one_of(value, map(str, Search), option))
    return replace(settings, cuda=replace(settings.cuda, search=search))


def _flag(change: Callable[[CudaSettings, bool], CudaSettings]) -> Setter:
    def set_flag(settings: ServeSettings, value: str, option: str) -> ServeSettings:
        return replace(settings, cuda=change(settings.cuda, _is_on(value, option)))

    return set_flag


def _is_on(value: str, option: str) -> bool:
    return _one_of(value.lower(), ("0", "1", "false", "true"), option) in ("1", "true")


def _without_effect(settings: ServeSettings, _value: str, _option: str) -> ServeSettings:
    return settings


_SETTERS: dict[str, Setter] = {
    "gpu_mem_limit": _limit,
    "arena_extend_strategy": _strategy,
    "cudnn_conv_algo_search": _search,
    "cudnn_conv_use_max_workspace": _flag(lambda c, on: replace(c, max_workspace=on)),
    "cudnn_conv1d_pad_to_nc1d": _flag(lambda c, on: replace(c, pad_to_nc1d=on)),
    "use_tf32": _flag(lambda c, on: replace(c, tf32=on)),
    "prefer_nhwc": _flag(lambda c, on: replace(c, prefer_nhwc=on)),
    "enable_cuda_graph": _flag(lambda c, on: replace(c, cuda_graph=on)),
    "session.use_device_allocator_for_initializers": _flag(
        lambda c, on: replace(c, reserve_weights=on)
    ),
    **dict.fromkeys(
        (
            *("device_id", "do_copy_in_default_stream", "use_ep_level_unified_stream"),
            *("has_user_compute_stream", "user_compute_stream", "tunable_op_enable"),
            *("tunable_op_tuning_enable", "tunable_op_max_tuning_duration_ms"),
            *("enable_skip_layer_norm_strict_mode", "external_data_loader_reading_threads"),
        ),
        _without_effect,
    ),
}
_REFUSED = {
    **dict.fromkeys(
        ("gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache"),
        "with an allocator of the caller's there is no arena to plan",
    ),
    "enable_cudnn": "only kernels with cuDNN are planned for",
    "sdpa_kernel": "which kernel attention has is not modelled",
    "fuse_conv_bias": "convolutions are planned with the bias added after them, the default",
}
