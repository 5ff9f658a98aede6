"""``model.onnx``: an ONNX model as a module, and the inputs that it is run with."""

from __future__ import annotations

import os

import torch
from torch import fx

from graphmem.errors import InputError
from graphmem.sources.building import Built, Recipe
from graphmem.sources.inputs import InputRequest, ModelInputs
from graphmem.sources.onnx.arguments import arguments_of
from graphmem.sources.onnx.assumed import Assumed
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import read_model
from graphmem.sources.onnx.user_rules import load_rules


def from_onnx(path: str | os.PathLike[str], weights: bool = True) -> fx.GraphModule:
    """An ONNX model as a ``torch.fx.GraphModule`` that computes, trains and can be analyzed.

    Each node is a submodule of its name: ``/layer1/conv/Conv`` is ``layer1.conv.Conv``, and its
    weights are its parameters: initializers of floats with a dimension (a file does not tell
    which a model would have as buffers), and Constant nodes where it has no such initializers.
    ``forward`` takes the graph's inputs in their order, or by their
    names as Python writes them (``images:0`` is ``images_0``): tensors, lists of tensors for
    sequences, None for an empty optional, numpy arrays for strings.

    An operator without a rule (``graphmem.onnx_rule`` adds one) does not stop this, but fails
    when it is run; in an analysis it takes a stated assumption.

    Args:
        path: the file. Weights in files beside it may be missing.
        weights: give parameters their values. Without, they are on the meta device, as are
            constants of more than 4,096 elements, and what a missing file has: enough for an
            analysis.

    Raises:
        ModelLoadError: in one line, if it is no model, or contradicts itself.
    """
    return build_module(read_model(os.fspath(path)), weights=weights, missing=Assumed({}))


def recipe(path: str, asked: InputRequest) -> Recipe:
    """How to build the model in the file ``path``, and its inputs of the sizes asked for.

    Raises:
        ModelLoadError: there is no such file, or it holds no model that can be built.
        InputError: an input or a size is missing, unknown, or said twice.
    """
    if asked.task is not None:
        raise InputError(f"{path}: --task {asked.task} is for hf: models; leave it out")
    if asked.rules is not None:
        load_rules(asked.rules)
    model = read_model(path)
    arguments = arguments_of(model, asked)

    def build(weights: bool) -> Built:
        missing = Assumed(arguments.sizes)
        # Where each tensor lies is said already: what a constructor is watched with only costs.
        with torch._C.DisableTorchFunction():
            module = build_module(model, weights=weights, missing=missing)
        return module, ModelInputs(arguments.args)

    return Recipe(
        "onnx",
        path,
        lambda: build(False),
        batched=True,
        complete=True,
        build_really=lambda: build(True),
    )
