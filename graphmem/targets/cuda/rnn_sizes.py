"""The sizes that cuDNN answers for recurrent layers: weights, reserve and workspace.

The functions ``cudnnGetRNNWeightSpaceSize``, ``cudnnGetRNNTempSpaceSizes`` and
``cudnnDropoutGetStatesSize`` of libcudnn 9.24 were asked for thousands of random layers of
all modes, dtypes and directions, with and without packed sequences, dropout and
projections, on a machine without a GPU: ``cudnnCreate`` needs one, so memory that holds a
GPU's attributes stood for the handle. The formulas here gave every answer: weights, reserve
and state to the byte, workspaces within 512 bytes, but for persistent kernels of fp16 layers
above a small size: with few rows they take up to 1 MiB more.

The reserve has been seen on a GPU: github.com/pytorch/pytorch/issues/2895 prints that of
cuDNN 7 on a P100, 736,000,000 bytes for an LSTM and 864,000,000 for a GRU, the same but for
256 bytes. The second function writes its answer and then fails for lack of a GPU; no
measurement confirms today's workspaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from graphmem.devices import Gpu
from graphmem.devices.attributes import attributes

_STREAM_BYTES = 8 << 20
"""What a workspace has for each layer and direction, whatever their size."""


class Mode(IntEnum):
    """``cudnnRNNMode_t``."""

    RELU = 0
    TANH = 1
    LSTM = 2
    GRU = 3


class Algorithm(Enum):
    """``cudnnRNNAlgo_t``, as far as PyTorch takes them."""

    STANDARD = "standard"
    PERSISTENT = "persistent"


_GATES = {Mode.RELU: 1, Mode.TANH: 1, Mode.LSTM: 4, Mode.GRU: 3}
_KEPT = {Mode.RELU: (1,), Mode.TANH: (1,), Mode.LSTM: (4, 1), Mode.GRU: (6,)}
"""For backward, in hidden states a row: of an LSTM its gates, and its cell."""
_PERSISTENT_BACKWARD = {Mode.RELU: 9, Mode.TANH: 9, Mode.LSTM: 12, Mode.GRU: 14}


@dataclass(frozen=True, slots=True)
class Recurrent:
    """The layers of one call: ``rows`` are the steps of all sequences of a batch.

    ``projection`` is the size of an LSTM's projected states, 0 without; ``itemsize`` the
    bytes of an element; ``has_dropout`` says that there is dropout between layers.
    """

    mode: Mode
    inputs: int
    hidden: int
    projection: int
    layers: int
    directions: int
    steps: int
    batch: int
    rows: int
    packed: bool
    itemsize: int
    has_dropout: bool

    @property
    def output(self) -> int:
        """The size of one direction's states."""
        return self.projection or self.hidden

    # -- weights

    def matrices(self) -> list[int]:
        """The elements of all matrices: of inputs, of states and of the projection, by layer."""
        sizes = []
        for layer in range(self.layers):
            width = self.directions * self.output if layer else self.inputs
            gates = _GATES[self.mode] * self.hidden
            one = [gates * width, gates * self.output]
            if self.projection:
                one.append(self.hidden * self.projection)
            sizes += one * self.directions
        return sizes

    def biases(self) -> list[int]:
        """The elements of all biases, two for each layer and direction, used or not."""
        return [_GATES[self.mode] * self.hidden] * (2 * self.layers * self.directions)

    def weight_elements(self) -> int:
        """The elements of the weight buffer: all matrices, then all biases."""
        return sum(self.matrices()) + sum(self.biases())

    # -- reserve

    def reserve_bytes(self) -> int:
        """What training keeps for backward.

        The gates, the outputs of inner layers, for projections both sizes of states, and a
        bit an element for the dropout of each inner layer and direction.
        """
        states = self.rows * self.directions * self.hidden * self.itemsize
        parts = [count * self.layers * states for count in _KEPT[self.mode]]
        parts.append((self.layers - 1) * states)
        if self.projection:
            projected = self.rows * self.directions * self.projection * self.itemsize
            parts += [self.layers * states, self.layers * projected]
        if self.has_dropout:
            mask = -(-self.steps * self.batch * self.directions * self.output // 8)
            parts += [mask] * ((self.layers - 1) * self.directions)
        return 256 + sum(_aligned(part) for part in parts)

    # -- workspace

    def workspace_bytes(self, gpu: Gpu, algorithm: Algorithm, *, training: bool) -> int:
        """What a call of forward or backward takes while it runs.

        Args:
            training: the answer for training, which backward takes too.
        """
        one_stream = gpu.compute_capability[0] == 8 and self.directions == 1 and self.layers > 1
        streams = 0 if one_stream else self.layers * self.directions
        lengths = 0 if self.packed else 8 * self.batch
        copies = self._packing()
        elements = self._forward(algorithm) + copies
        if training:
            elements = max(elements, self._backward(gpu, algorithm) + 2 * copies)
        elements += sum(self.matrices())
        return streams * _STREAM_BYTES + 256 + lengths + elements * self.itemsize

    def _packing(self) -> int:
        """Packed copies of input, output and states, where the caller's are padded."""
        if self.packed:
            return 0
        cells = self.hidden if self.mode is Mode.LSTM else 0
        states = 2 * self.layers * self.directions * self.batch * (self.output + cells)
        return self.rows * (self.inputs + self.directions * self.output) + states

    def _forward(self, algorithm: Algorithm) -> int:
        gates, cells = _GATES[self.mode], 2 if self.mode is Mode.LSTM else 0
        row, state = self.rows * self.hidden, self.layers * self.batch * self.hidden
        one_way = self.directions == 1
        projected = self.directions * row if self.projection else 0
        dropped = row if self.has_dropout and one_way else 0
        if algorithm is Algorithm.PERSISTENT:
            apart = self._backward_states() + 1 if one_way else 2 * self._backward_states() + 4
            return (5 * gates if one_way else 6 * gates + 4) * row + apart * state + dropped
        if one_way:
            ahead = min(self.rows, 256 * self.batch)
            return gates * ahead * self.hidden + (gates + cells) * state + projected + dropped
        return (2 * gates + 4) * row + (2 * (gates + cells) + 4) * state + projected

    def _backward_states(self) -> int:
        return 3 if self.mode is Mode.LSTM else 1

    def _backward(self, gpu: Gpu, algorithm: Algorithm) -> int:
        row, state = self.rows * self.hidden, self.layers * self.batch * self.hidden
        states, one_way = self._backward_states(), self.directions == 1
        widest = self.rows * max(self.inputs, self.hidden) * (1 if one_way else 4)
        inner = self.directions * (1 if self.layers == 1 else 2)
        projected = self.directions * row if self.projection else 0
        if algorithm is Algorithm.PERSISTENT:
            apart = states + 1 if one_way else 2 * states + 4
            return widest + (_PERSISTENT_BACKWARD[self.mode] + inner) * row + apart * state
        if one_way:
            ahead = min(self.rows, self._steps_ahead(gpu) * self.batch)
            return widest + ahead * self.hidden + states * state + projected
        return widest + inner * row + (2 * states + 4) * state + projected

    def _steps_ahead(self, gpu: Gpu) -> int:
        """The steps for which backward holds gradients: layers run one block apart."""
        if self.layers == 1:
            return self.steps
        block = self._block(gpu)
        return min(self.steps, block * self.layers + max(block, 8))

    def _block(self, gpu: Gpu) -> int:
        """The steps of a block."""
        if self.batch == 1:
            return 32
        if self.batch <= 8:
            return 16
        if self.batch <= 16 or (self.steps >= 128 and gpu.compute_capability[0] >= 8):
            return 8
        return 4 if self.batch <= 96 else 2


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 32) * 32


def dropout_state_bytes(gpu: Gpu) -> int:
    """The state of cuDNN's random generator: 24 bytes for each thread that a GPU can hold."""
    threads: int = attributes(gpu)["maxThreadsPerSM"]
    return 24 * gpu.multiprocessors * threads
