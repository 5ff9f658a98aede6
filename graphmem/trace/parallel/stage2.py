"""ZeRO 2 as DeepSpeed runs it: gradients and optimizer states are sharded, parameters are not.

What DeepSpeed does to memory, with its default settings, as a loop in torch's own operators:

1. The trainable parameters become views of one flat tensor, padded to a multiple of twice the
   ranks. A rank owns an equal part of it, and has an fp32 copy of that part, also where the
   parameters are fp32; the optimizer works on the copy.
2. In backward each gradient is moved into a bucket of ``reduce_bucket_size`` elements, which is
   taken at the first gradient and let go at the end of backward. A full bucket is divided,
   flattened once more where it has parts of several ranks, and reduced; a gradient that
   is larger than a bucket is reduced alone.
3. Of what was reduced, gradients of parameters that reach into the rank's own part are copied
   into a tensor as large as all of these parameters together, the others are let go.
4. The step takes the norm of each own gradient in fp64, flattens the gradients into one of fp32,
   scales it, runs the optimizer, copies the part back and gathers the flat tensor in place.

Not covered: ``overlap_comm`` (a second bucket), offloading, fp16's search for overflows, several
parameter groups.

Source: DeepSpeed, deepspeed/runtime/zero/stage_1_and_2.py at 02aa38c:
``DeepSpeedZeroOptimizer.__init__``, ``initialize_optimizer_states``, ``setup_buckets``,
``reduce_independent_p_g_buckets_and_remove_grads``, ``average_tensor``, ``allreduce_bucket``,
``copy_grads_in_partition``, ``independent_gradient_partition_epilogue``, ``get_grad_norm_direct``
and ``step``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from graphmem.schedule import Category
from graphmem.trace.parallel.flat import Flat

Claim = Callable[[Tensor, Category], None]


class Stage2:
    """In the place of an optimizer: what DeepSpeed's ``backward`` and ``step`` do.

    Args:
        flat: the parameters, on one tensor.
        made: makes the optimizer of the rank's own part.
        bucket: ``reduce_bucket_size``, a number of elements.
        claim: is told what some tensors are for.
    """

    def __init__(
        self, flat: Flat, made: Callable[[list[nn.Parameter]], Any], bucket: int, claim: Claim
    ) -> None:
        self._flat, self._size, self._claim = flat, bucket, claim
        self._master = nn.Parameter(flat.part.detach().clone().to(torch.float32))
        claim(self._master, Category.OPTIMIZER_STATES)
        self._optimizer = made([self._master])
        torch.zeros_like(self._master)  # initialize_optimizer_states takes it, and lets it go
        self._waiting = len(flat.parameters)
        self._bucket: Tensor | None = None
        self._filled: list[nn.Parameter] = []
        self._own: Tensor | None = None
        self._own_filled = 0
        self._averaged: list[Tensor] | None = None
        for parameter in flat.parameters:
            parameter.register_post_accumulate_grad_hook(self._arrived)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The gradients of parameters are gone already."""

    # -- backward

    @torch.no_grad()
    def _arrived(self, parameter: Tensor) -> None:
        """Move a gradient into the bucket, and reduce what is full."""
        assert isinstance(parameter, nn.Parameter)
        assert parameter.grad is not None
        if self._bucket is None:
            self._bucket = torch.empty(self._size, dtype=parameter.dtype, device=parameter.device)
        if self._elements() + parameter.numel() > self._size:
            self._reduce()
        if parameter.numel() <= self._size:
            place = self._bucket.narrow(0, self._elements(), parameter.numel())
            _move(parameter.grad, place)
        self._filled.append(parameter)
        self._waiting -= 1
        if not self._waiting:
            self._end_backward()

    def _elements(self) -> int:
        return sum(parameter.numel() for parameter in self._filled)

    def _reduce(self) -> None:
        """Reduce the gradients that are in the bucket, or one that is larger."""
        if not self._filled:
            return
        numel = self._elements()
        assert self._bucket is not None
        if numel > self._size:
            assert self._filled[0].grad is not None
            reduced = self._filled[0].grad.view(-1)
        else:
            reduced = self._bucket.narrow(0, 0, numel)
        reduced.div_(self._flat.ranks)
        self._all_reduce(reduced)
        del reduced
        for parameter in self._filled:
            self._keep(parameter)
        self._filled = []

    def _all_reduce(self, reduced: Tensor) -> None:
        """Reduce in a copy, if it has parts of several ranks, and take the own part from there."""
        parts = self._flat.parts_of(self._filled)
        if len(parts) == 1:
            dist.all_reduce(reduced)
            return
        sizes = [numel for _, numel in parts]
        slices = reduced.split(sizes)
        sent = torch.cat(slices)
        dist.all_reduce(sent)
        for (rank, _), mine, synced in zip(parts, slices, sent.split(sizes), strict=True):
            if rank == self._flat.rank:
                mine.copy_(synced)

    def _keep(self, parameter: nn.Parameter) -> None:
        """Copy the gradient of an own parameter to the others; let go of any other."""
        if not self._flat.is_own(parameter):
            parameter.grad = None
            return
        if self._own is None:
            own = sum(p.numel() for p in self._flat.parameters if self._flat.is_own(p))
            self._own = torch.empty(own, dtype=parameter.dtype, device=parameter.device)
            self._claim(self._own, Category.GRADIENTS)
        assert parameter.grad is not None
        _move(parameter.grad, self._own.narrow(0, self._own_filled, parameter.numel()))
        self._own_filled += parameter.numel()

    def _end_backward(self) -> None:
        """Reduce the rest, sum up micro-batches, and let go of the buffers."""
        self._reduce()
        own = [p for p in self._flat.parameters if self._flat.is_own(p)]
        gradients = [p.grad for p in own if p.grad is not None]
        if self._averaged is None:
            self._averaged = gradients
        else:
            for sum_, gradient in zip(self._averaged, gradients, strict=True):
                sum_.add_(gradient)
        self._bucket = self._own = None
        self._own_filled, self._waiting = 0, len(self._flat.parameters)
        for parameter in self._flat.parameters:
            parameter.grad = None

    # -- the step

    def step(self) -> None:
        """Update the own part, and gather all parts."""
        with torch.no_grad():
            self._master.grad = self._gradient()
            self._master.grad.mul_(1.0)  # by the loss scale, which is 1, and the clipping factor
        self._optimizer.step()
        with torch.no_grad():
            self._master.grad = None
            self._flat.part.copy_(self._master)
            dist.all_gather_single(self._flat.whole, self._flat.part)

    def _gradient(self) -> Tensor:
        """The gradient of the own part in fp32; the averaged ones are let go."""
        if self._bucket is not None:  # some parameter was not used
            self._end_backward()
        assert self._averaged is not None
        parts = self._flat.own_slices(self._averaged)
        norms = [torch.linalg.vector_norm(part.double()) for part in parts]
        dist.all_reduce(torch.stack(norms).square().sum().float())
        del norms
        flat = torch.cat(parts) if len(parts) > 1 else parts[0].reshape(-1)
        self._averaged = None
        del parts
        return flat.to(torch.float32)


def _move(gradient: Tensor, place: Tensor) -> None:
    """Copy a gradient, and let it be there; its own memory is let go."""
    place.copy_(gradient.view(-1))
    gradient.data = place.view_as(gradient)
