"""LSTM, GRU and RNN: cuDNN's kernels, what they return, save and allocate.

Sources, as of torch 2.13 and 2.14: aten/src/ATen/native/RNN.cpp and cudnn/RNN.cpp. cuDNN's
own sizes are in ``rnn_sizes``. Under autocast the weights are copied
(``autocast.Policy.CUDNN_RNN``). Not covered: where cuDNN does not run (it is switched off, or
bf16 on a GPU before SM 8.0), the operators are the CPU's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from graphmem.devices import Gpu
from graphmem.options import Target
from graphmem.schedule import Scratch, Unknown
from graphmem.targets import context
from graphmem.targets.cuda.norms import copy_bytes
from graphmem.targets.cuda.rnn_sizes import Algorithm, Mode, Recurrent, dropout_state_bytes
from graphmem.targets.layout import Layout
from graphmem.targets.overrides import override
from graphmem.targets.results import fresh, results
from graphmem.targets.scratch import Call, scratch

aten = torch.ops.aten

_FULL = (torch.float64, torch.float32, torch.float16)


class _Options(NamedTuple):
    """The last arguments of all recurrent operators."""

    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool = False


# -- from the composite operators to cuDNN's


@override(aten.lstm.input, Target.CUDA)
def lstm(input: Tensor, hx: list[Tensor], params: list[Tensor], *options: Any) -> Any:
    """Sequences [S, B, I], or [B, S, I] with batch_first; hx is (h, c)."""
    return _run(aten.lstm.input, Mode.LSTM, input, None, hx, params, options)


@override(aten.lstm.data, Target.CUDA)
def lstm_packed(
    data: Tensor, batch_sizes: Tensor, hx: list[Tensor], params: list[Tensor], *options: Any
) -> Any:
    """Packed sequences: data [rows, I]."""
    return _run(aten.lstm.data, Mode.LSTM, data, batch_sizes, hx, params, options)


def _of_one_state(name: str, mode: Mode) -> None:
    """Register the overrides of ``aten.<name>``, whose layers have one hidden state."""
    padded, packed = getattr(aten, name).input, getattr(aten, name).data

    @override(padded, Target.CUDA)
    def run_padded(input: Tensor, hx: Tensor, params: list[Tensor], *options: Any) -> Any:
        return _run(padded, mode, input, None, hx, params, options)

    @override(packed, Target.CUDA)
    def run_packed(
        data: Tensor, batch_sizes: Tensor, hx: Tensor, params: list[Tensor], *options: Any
    ) -> Any:
        return _run(packed, mode, data, batch_sizes, hx, params, options)


_of_one_state("gru", Mode.GRU)
_of_one_state("rnn_tanh", Mode.TANH)
_of_one_state("rnn_relu", Mode.RELU)


def _run(
    func: OpOverload,
    mode: Mode,
    input: Tensor,
    batch_sizes: Tensor | None,
    hx: Tensor | list[Tensor],
    params: list[Tensor],
    rest: Sequence[Any],
) -> Any:
    """``_cudnn_impl``: run ``_cudnn_rnn``, or the composition where cuDNN does not run."""
    name, options, told = (
        func._schema.name.removeprefix("aten::"),
        _Options(*rest),
        context.current(),
    )
    reason = _against_cudnn(input, told.gpu)
    if reason is not None:
        told.chose(name, "composition", f"not cudnn: {reason}")
        told.note(_NOT_CUDNN)
        arguments = (input, hx, params) if batch_sizes is None else (input, batch_sizes, hx, params)
        return func.decompose(*arguments, *rest)
    told.chose(name, "cudnn", "the first choice, and nothing stands against it")
    told.note(_WORKSPACE)
    hidden, cell = (hx[0], hx[1]) if mode is Mode.LSTM else (hx, None)
    _make_dropout_state(told, options)
    output, hy, cy, *_ = aten._cudnn_rnn.default(
        input,
        params,
        len(params) // (options.num_layers * (2 if options.bidirectional else 1)),
        _buffer(params),
        hidden,
        cell,
        int(mode),
        *_sizes(hidden, cell),
        options.num_layers,
        options.batch_first,
        options.dropout,
        options.train,
        options.bidirectional,
        [] if batch_sizes is None else batch_sizes.tolist(),
        None,  # the dropout state is the process's, and not saved for backward
    )
    return (output, hy, cy) if cell is not None else (output, hy)


def _against_cudnn(input: Tensor, gpu: Gpu) -> str | None:
    """What speaks against cuDNN (``use_cudnn``, ``cudnn_is_acceptable``)."""
    if not torch.backends.cudnn.enabled:
        return "it is switched off"
    if input.dtype is torch.bfloat16:
        return None if gpu.compute_capability >= (8, 0) else "no bfloat16 before SM 8.0"
    if input.dtype not in _FULL:
        return f"it does not take {input.dtype}"
    return "the input is empty" if input.numel() == 0 else None


_NOT_CUDNN = Unknown(
    "recurrent layers without cuDNN",
    "aten::lstm, aten::gru, aten::rnn_tanh, aten::rnn_relu",
    "the CPU's operators",
)
_WORKSPACE = Unknown(
    "the workspace of cuDNN's recurrent layers",
    "aten::_cudnn_rnn, aten::_cudnn_rnn_backward",
    "what libcudnn 9.24 answers before it looks at the GPU; no measurement confirms it",
)


def _sizes(hidden: Any, cell: Any) -> tuple[int, int]:
    """The size of the hidden states, and that of their projection, 0 without."""
    width: int = hidden.shape[2]
    if cell is None or cell.shape[2] == width:
        return width, 0
    return cell.shape[2], width


def _buffer(params: Sequence[Tensor]) -> Tensor | None:
    """The buffer that all weights lie in, None if they do not (``try_get_weight_buf``).

    ``nn.LSTM`` and the like put their parameters there when they come to the GPU; weights
    that are computed are copied together in each call.
    """
    if not all(isinstance(weight, torch.nn.Parameter) for weight in params):
        return None
    first = params[0].detach()
    elements = first.untyped_storage().nbytes() // first.element_size()
    return first.as_strided((elements,), (1,), 0)


def _make_dropout_state(told: context.Context, options: _Options) -> None:
    """Make the state of the random generator, at the first use of dropout; it is kept."""
    if options.train and options.dropout and _STATE not in told.kept:
        told.kept[_STATE] = aten._cudnn_init_dropout_state.default(
            options.dropout, options.train, 0, dtype=torch.uint8, device=torch.device("cpu")
        )


_STATE = "cuDNN's dropout state"


# -- what cuDNN's operators return


@results(aten._cudnn_init_dropout_state.default, target=Target.CUDA)
def init_dropout_state(call: Call) -> Layout:
    """The state of the random generator, a byte tensor. Source: ``initialize_rng``."""
    return fresh((dropout_state_bytes(context.current().gpu),), torch.uint8)


class Arguments(NamedTuple):
    """``_cudnn_rnn``'s arguments; input is [S, B, I], [B, S, I] or, packed, [rows, I]."""

    input: Layout
    weight: list[Layout]
    weight_stride0: int
    weight_buf: Layout | None
    hx: Layout
    cx: Layout | None
    mode: int
    hidden_size: int
    proj_size: int
    num_layers: int
    batch_first: bool
    dropout: float
    train: bool
    bidirectional: bool
    batch_sizes: list[int]
    dropout_state: Layout | None

    @property
    def transposed(self) -> bool:
        """Whether input and output are batch first, and cuDNN's steps first."""
        return self.batch_first and not self.batch_sizes

    def layers(self) -> Recurrent:
        """The layers, as cuDNN is told of them."""
        sizes = self.input.size
        if self.batch_sizes:
            steps, batch, rows = len(self.batch_sizes), self.batch_sizes[0], sizes[0]
        else:
            steps, batch = sizes[1::-1] if self.batch_first else sizes[:2]
            rows = steps * batch
        return Recurrent(
            mode=Mode(self.mode),
            inputs=sizes[-1],
            hidden=self.hidden_size,
            projection=self.proj_size,
            layers=self.num_layers,
            directions=2 if self.bidirectional else 1,
            steps=steps,
            batch=batch,
            rows=rows,
            packed=bool(self.batch_sizes),
            itemsize=self.input.dtype.itemsize,
            has_dropout=self.train and self.dropout > 0,
        )

    def like_input(self, width: int) -> Layout:
        """A new tensor of the sequences, steps first in memory."""
        sizes = (*self.input.size[:-1], width)
        if not self.transposed:
            return fresh(sizes, self.input.dtype)
        made = fresh((sizes[1], sizes[0], width), self.input.dtype)
        step, batch, one = made.stride
        return made._replace(size=sizes, stride=(batch, step, one))


def _steps_first(tensor: Layout, transposed: bool) -> Layout:
    """A view with the steps first."""
    if not transposed:
        return tensor
    (batch, steps, width), (b, s, w) = tensor.size, tensor.stride
    return tensor._replace(size=(steps, batch, width), stride=(s, b, w))


@results(aten._cudnn_rnn.default, target=Target.CUDA)
def cudnn_rnn(call: Call) -> tuple[Layout, ...]:
    """output, hy, cy, reserve and weight_buf.

    Output [..., D * H], hy and cy as hx and cx; the reserve is bytes, none in evaluation. A
    ``weight_buf`` that is given is returned itself; here an empty tensor stands for it, as
    autograd holds on to the weights in it anyway. Source: ``_cudnn_rnn``.
    """
    given = Arguments(*call.args)
    for name, state in (("hx", given.hx), ("cx", given.cx)):
        if state is not None and copy_bytes(state):
            raise RuntimeError(f"rnn: {name} is not contiguous")
    layers, dtype = given.layers(), given.input.dtype
    elements = layers.weight_elements() if given.weight_buf is None else 0
    return (
        given.like_input(layers.directions * layers.output),
        fresh(given.hx.size, given.hx.dtype),
        fresh((0,) if given.cx is None else given.cx.size, given.hx.dtype),
        fresh((layers.reserve_bytes() if given.train else 0,), torch.uint8),
        fresh((elements,), dtype),
    )


class BackwardArguments(NamedTuple):
    """``_cudnn_rnn_backward``'s arguments; gradients of hy and cy may be None."""

    input: Layout
    weight: list[Layout]
    weight_stride0: int
    weight_buf: Layout
    hx: Layout
    cx: Layout | None
    output: Layout
    grad_output: Layout | None
    grad_hy: Layout | None
    grad_cy: Layout | None
    mode: int
    hidden_size: int
    proj_size: int
    num_layers: int
    batch_first: bool
    dropout: float
    train: bool
    bidirectional: bool
    batch_sizes: list[int]
    dropout_state: Layout | None
    reserve: Layout
    output_mask: list[bool]

    def forward(self) -> Arguments:
        """The arguments of the forward."""
        return Arguments._make((*self[:6], *self[10:20]))

    @property
    def shares_gradients(self) -> bool:
        """Whether the weights' gradients are views of one buffer, as those with biases are."""
        return self.weight_stride0 == (5 if self.proj_size else 4)


@results(aten._cudnn_rnn_backward.default, target=Target.CUDA)
def cudnn_rnn_backward(call: Call) -> tuple[Any, ...]:
    """Gradients of input, hx and cx, always, and of the weights, views of one buffer.

    Without biases they are copied out of it, as it has room for biases in any case.
    Source: ``_cudnn_rnn_backward``, ``_cudnn_rnn_backward_weight``.

    Raises:
        RuntimeError: after a forward in evaluation, as torch does.
    """
    given = BackwardArguments(*call.args)
    if not given.train:
        raise RuntimeError("cudnn RNN backward can only be called in training mode")
    gradient = given.forward().like_input(given.input.size[-1])
    weights: list[Layout] = []
    if given.output_mask[3]:
        weights = _shared(given) if given.shares_gradients else _apart(given)
    cell = None if given.cx is None else fresh(given.cx.size, given.cx.dtype)
    return gradient, fresh(given.hx.size, given.hx.dtype), cell, weights


def _apart(given: BackwardArguments) -> list[Layout]:
    made = (fresh(weight.size, weight.dtype) for weight in given.weight)
    return [gradient._replace(alias=number) for number, gradient in enumerate(made)]


def _shared(given: BackwardArguments) -> list[Layout]:
    """Views of the gradients' buffer, one after another as the weights are in theirs."""
    layers = given.forward().layers()
    nbytes = layers.weight_elements() * layers.itemsize
    offsets = weight_offsets(layers)
    return [
        fresh(weight.size, weight.dtype)._replace(offset=offset, nbytes=nbytes, alias=0)
        for weight, offset in zip(given.weight, offsets, strict=True)
    ]


def weight_offsets(layers: Recurrent, *, biases: bool = True) -> list[int]:
    """Where a module's weights lie in the buffer: all matrices first, then all biases.

    For each layer and direction, in the order of the parameters: of inputs, of states, two
    biases, of the projection. In elements, as ``cudnnGetRNNWeightParams`` answers.

    Args:
        biases: whether the module has them; the buffer has their place in any case.
    """
    matrices, one_bias = layers.matrices(), layers.biases()[0]
    each = 3 if layers.projection else 2
    offsets, matrix, bias = [], 0, sum(matrices)
    for number in range(layers.layers * layers.directions):
        of_layer = matrices[number * each : (number + 1) * each]
        starts = [matrix + sum(of_layer[:position]) for position in range(each)]
        of_biases = [bias, bias + one_bias] if biases else []
        offsets += [*starts[:2], *of_biases, *starts[2:]]
        matrix, bias = matrix + sum(of_layer), bias + 2 * one_bias
    return offsets


# -- scratch


@scratch("aten::_cudnn_rnn", target=Target.CUDA)
def forward_scratch(call: Call) -> tuple[int, ...]:
    """A copy of the input with steps first and dense, and the workspace.

    Inputs: as ``Arguments``. Source: ``_cudnn_rnn``.
    """
    given = Arguments(*call.args)
    layers = given.layers()
    algorithm = _algorithm(given, call.gpu, forward=True)
    workspace = layers.workspace_bytes(call.gpu, algorithm, training=given.train)
    return copy_bytes(_steps_first(given.input, given.transposed)), workspace


@scratch("aten::_cudnn_rnn_backward", target=Target.CUDA)
def backward_scratch(call: Call) -> Scratch:
    """Copies and a workspace, first for the data's gradients, then for the weights'.

    Inputs: as ``BackwardArguments``. Gradients that are not there are zeros.
    Source: ``_cudnn_rnn_backward``, ``_cudnn_rnn_backward_input``,
    ``_cudnn_rnn_backward_weight``.
    """
    given = BackwardArguments(*call.args)
    forward = given.forward()
    layers = forward.layers()
    algorithm = _algorithm(forward, call.gpu, forward=False)
    workspace = layers.workspace_bytes(call.gpu, algorithm, training=True)
    source = copy_bytes(_steps_first(given.input, forward.transposed))
    zeros = (
        given.output.nbytes if given.grad_output is None else 0,
        given.hx.nbytes if given.grad_hy is None else 0,
        given.cx.nbytes if given.cx is not None and given.grad_cy is None else 0,
    )
    gradient = 0
    if given.grad_output is not None:
        gradient = copy_bytes(_steps_first(given.grad_output, forward.transposed))
    buffer = 0 if given.shares_gradients else layers.weight_elements() * layers.itemsize
    second = (*zeros, source, buffer, workspace) if given.output_mask[3] else ()
    return (*zeros, source, gradient, workspace), second


def _algorithm(given: Arguments, gpu: Gpu, *, forward: bool) -> Algorithm:
    """The algorithm whose workspace is taken (``get_algo``).

    bf16 asks for a persistent one too, and cuDNN answers with the standard workspace, as it
    does from SM 10.0 on for fp16 layers of more than a small size.
    """
    layers, dtype = given.layers(), given.input.dtype
    if layers.projection or layers.packed or dtype not in (torch.float32, torch.float16):
        return Algorithm.STANDARD
    small = layers.hidden <= _SMALL[layers.mode in (Mode.LSTM, Mode.GRU), forward]
    large = dtype is torch.float16 and gpu.sm < 100 and _persists(layers, gpu)
    return Algorithm.PERSISTENT if small or large else Algorithm.STANDARD


_SMALL = {(False, True): 384, (False, False): 256, (True, True): 192, (True, False): 128}
"""By whether the layers have gates, and forward: ``use_rnn_persist_small_h``."""


def _persists(layers: Recurrent, gpu: Gpu) -> bool:
    """``use_persist_common_heuristics`` and ``use_persist_device_heuristics``."""
    shapes = layers.layers == layers.directions == 1 and layers.hidden <= 1024
    if not shapes or layers.hidden % 128 or layers.inputs % 128:
        return False
    major, minor = gpu.compute_capability
    if major == 7:
        return minor != 5 and _volta_persists(layers)
    if major < 8 or gpu.multiprocessors < 98 or minor == 6 or layers.mode is Mode.GRU:
        return False
    if layers.batch % 8 or layers.batch > 128:
        return False
    return layers.mode is Mode.LSTM or layers.batch < 96 or layers.hidden < 896


def _volta_persists(layers: Recurrent) -> bool:
    batch, steps = layers.batch, layers.steps
    if batch != 8 and (batch % 16 or batch in (80, 112)):
        return False
    limits = ((40, 128), (20, 96), (10, 32))
    return any(steps >= least and batch <= most for least, most in limits)
