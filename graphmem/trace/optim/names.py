"""The names of optimizers that torch.optim does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphmem.sources.packages import needed
from graphmem.trace.optim.adam_mini import AdamMini
from graphmem.trace.optim.blockwise import Blockwise
from graphmem.trace.optim.lion import Lion
from graphmem.trace.optim.low_bit import LowBit
from graphmem.trace.optim.together import MuonAndAdamW


def _transformers_adafactor(*args: Any, **kwargs: Any) -> Any:
    """The Adafactor of transformers, with the settings of its Trainer.

    Source: transformers/trainer_optimizer.py, ``_get_adafactor`` (5.24): no scaling by the
    parameter and no relative step.
    """
    module = needed("transformers.optimization", "hf", "optimizer: transformers_adafactor")
    return module.Adafactor(*args, scale_parameter=False, relative_step=False, **kwargs)


@dataclass(frozen=True, slots=True)
class Model:
    """What makes an optimizer, and its arguments; ``hinted`` ones are given ``hints=`` too."""

    factory: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    hinted: bool = False


def _blockwise(**arguments: Any) -> Model:
    return Model(Blockwise, arguments, hinted=True)


MODELS: dict[str, Model] = {
    "lion": Model(Lion),
    "adam_mini": Model(AdamMini, hinted=True),
    "muon+adamw": Model(MuonAndAdamW, hinted=True),
    "transformers_adafactor": Model(_transformers_adafactor, {"lr": 1e-3}),
    # bitsandbytes
    "adam8bit": _blockwise(),
    "adamw8bit": _blockwise(),
    "paged_adam8bit": _blockwise(is_paged=True),
    "paged_adamw8bit": _blockwise(is_paged=True),
    "paged_adam": _blockwise(is_paged=True, optim_bits=32),
    "paged_adamw": _blockwise(is_paged=True, optim_bits=32),
    "lion8bit": _blockwise(states=1),
    "paged_lion8bit": _blockwise(states=1, is_paged=True),
    "lion_32bit": _blockwise(states=1, optim_bits=32),
    "paged_lion": _blockwise(states=1, is_paged=True, optim_bits=32),
    "sgd8bit": _blockwise(states=1),
    "rmsprop8bit": _blockwise(states=1),
    "adagrad8bit": _blockwise(states=1),
    "ademamix": _blockwise(twice=True, optim_bits=32),
    "ademamix8bit": _blockwise(twice=True),
    "paged_ademamix": _blockwise(twice=True, is_paged=True, optim_bits=32),
    "paged_ademamix8bit": _blockwise(twice=True, is_paged=True),
    # torchao
    "ao_adam8bit": Model(LowBit),
    "ao_adamw8bit": Model(LowBit),
    "ao_adam4bit": Model(LowBit, {"bits": 4}),
    "ao_adamw4bit": Model(LowBit, {"bits": 4}),
    "ao_adamfp8": Model(LowBit, {"fp8": True}),
    "ao_adamwfp8": Model(LowBit, {"fp8": True}),
}


def of_class(cls: type[Any]) -> str | None:
    """The name of the model to take for a class of torchao.

    Its step is compiled; run eagerly, as under a trace, it has temporaries that it has not.
    """
    name = f"ao_{cls.__name__.lower()}"
    is_torchao = cls.__module__.startswith("torchao.optim")
    return name if is_torchao and name in MODELS else None


_TRAINER = "(embeddings_32bit=True)"

ALIASES: dict[str, str] = {
    "adamw_8bit": f"adamw8bit{_TRAINER}",
    "adamw_bnb_8bit": f"adamw8bit{_TRAINER}",
    "paged_adamw_8bit": f"paged_adamw8bit{_TRAINER}",
    "paged_adamw_32bit": "paged_adamw",
    "lion_8bit": f"lion8bit{_TRAINER}",
    "paged_lion_8bit": f"paged_lion8bit{_TRAINER}",
    "paged_lion_32bit": "paged_lion",
    "ademamix_8bit": f"ademamix8bit{_TRAINER}",
    "paged_ademamix_8bit": f"paged_ademamix8bit{_TRAINER}",
    "paged_ademamix_32bit": "paged_ademamix",
    "rmsprop_bnb_8bit": f"rmsprop8bit{_TRAINER}",
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw(fused=True)",
    "adamw_torch_8bit": "ao_adamw8bit",
    "adamw_torch_4bit": "ao_adamw4bit",
}
"""The names of ``TrainingArguments.optim``, in transformers' Trainer, which overrides embeddings.

Source: transformers/training_args.py, ``OptimizerNames``; trainer.py, ``create_optimizer``
(5.24).
"""
