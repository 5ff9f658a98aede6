"""The options that save memory by running a training in another way, checked together.

What each does is in the file that does it: ``trace.checkpointing``, ``trace.offloading``,
``trace.host_optimizer``, ``trace.in_backward``, ``trace.chunked_loss`` and ``trace.layouts``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphmem.errors import UsageError
from graphmem.options import DEFAULTS, Mode, Options, nearest, words

OFFLOADED = ("activations", "optimizer")
"""What can lie in the host's memory."""

NAMES = (
    *("checkpoint", "checkpoint_every", "checkpoint_save", "checkpoint_reentrant"),
    *("offload", "pin_memory", "optimizer_in_backward", "channels_last", "chunked_loss"),
)
"""The options."""

_OF_TRAINING = tuple(name for name in NAMES if name != "channels_last")


def parts(text: str | None) -> tuple[str, ...]:
    """The names in a text such as ``aten.mm,aten.addmm``."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def as_text(given: str | Iterable[Any] | None) -> str | None:
    """One text of a name or several, None of nothing; operators go by their names."""
    if given is None or isinstance(given, str):
        return given or None
    return ",".join(str(item) for item in given) or None


def check(options: Options) -> None:
    """Refuse techniques that can't be run, or not together.

    Raises:
        UsageError: naming the option, and what to do.
    """
    used = [name for name in _OF_TRAINING if getattr(options, name) != DEFAULTS[name]]
    if used and options.mode is not Mode.TRAINING:
        raise UsageError(f"{words(used[0])}: an inference keeps nothing to save; use mode training")
    if used and options.compile:
        raise UsageError(
            f"{words(used[0])}: what torch.compile makes of it is not simulated; leave out compile"
        )
    _check_checkpoint(options)
    _check_offload(options)
    _check_in_backward(options)
    if options.chunked_loss is not None and options.chunked_loss < 1:
        raise UsageError(f"chunked loss: {options.chunked_loss} chunks are none; 1 or more")


def _check_checkpoint(options: Options) -> None:
    if options.checkpoint is None:
        for name in ("checkpoint_every", "checkpoint_save", "checkpoint_reentrant"):
            if getattr(options, name) != DEFAULTS[name]:
                raise UsageError(f"{words(name)}: of which modules? add checkpoint")
    if options.checkpoint_every < 1:
        raise UsageError(f"checkpoint every must be 1 or more, not {options.checkpoint_every}")
    if options.checkpoint_save and options.checkpoint_reentrant:
        raise UsageError(
            "checkpoint save: a reentrant checkpoint keeps no operator's results "
            "(torch.utils.checkpoint takes context_fn with use_reentrant=False only)"
        )


def _check_offload(options: Options) -> None:
    for name in parts(options.offload):
        if name not in OFFLOADED:
            raise UsageError(
                f"offload: {name!r} is not one of {', '.join(OFFLOADED)}{nearest(name, OFFLOADED)}"
            )
    if options.pin_memory and not options.offload:
        raise UsageError("pin memory: of what that is offloaded? add offload")
    if "optimizer" in parts(options.offload) and options.has_fp16_gradients:
        raise UsageError(
            f"offload optimizer: with precision {options.precision} a GradScaler works on the "
            "GPU's gradients, which this scheme does not have; use bf16 or amp-bf16"
        )


def _check_in_backward(options: Options) -> None:
    """The optimizer steps before all gradients are there."""
    if not options.optimizer_in_backward:
        return
    for name, why in (
        (options.accumulate > 1, "accumulate: a gradient is gone when the next micro-batch comes"),
        (options.clip_grad_norm is not None, "clip grad norm: the norm is of all gradients"),
        (options.master_weights, "master weights: their gradients are taken after backward"),
        ("optimizer" in parts(options.offload), "offload optimizer: it takes them after backward"),
        (options.has_fp16_gradients, "a GradScaler: it looks at all gradients"),
    ):
        if name:
            raise UsageError(f"optimizer in backward does not go with {why}")
