"""One rank of several: what torch's wrappers make of a model and its optimizer in a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from graphmem.options import Options, Target, Wrapper
from graphmem.schedule import Unknown
from graphmem.trace.optimizers import OptimizerChoice, make_optimizer
from graphmem.trace.parallel import Alone, flat, redundancy, replicated, sharded, tensors
from graphmem.trace.parallel.group import fake_ranks
from graphmem.trace.parallel.stage2 import Claim, Stage2
from graphmem.trace.parallel.units import units_of
from graphmem.trace.session import Session

_NCCL = Unknown("the buffers of NCCL", "outside of the caching allocator", "nothing")


class Ranks(Alone):
    """A model on several GPUs, as one of them sees it."""

    def __init__(
        self, model: nn.Module, options: Options, mesh: DeviceMesh, stack: ExitStack
    ) -> None:
        self._model, self._options = model, options
        self._mesh, self._stack = mesh, stack
        self._plan = tensors.plan_of(model, options.tp_plan) if self._is(Wrapper.TENSORS) else {}
        self._really = False
        self._flat: flat.Flat | None = None
        self._claim: Claim = lambda tensor, category: None
        self._units = units_of(model, options.fsdp_units) if self._is(Wrapper.FSDP) else {}

    def _is(self, *wrappers: Wrapper) -> bool:
        return self._options.wrapper in wrappers

    def shard(self, session: Session) -> None:
        """Before the parameters are counted: let only shards of them stand there."""
        if self._options.target is Target.CUDA:
            session.recorder.ledger.note(_NCCL)
        if self._is(Wrapper.FSDP):
            sharded.to_meta(self._model)
            self._shard()
            sharded.hollow(self._model)
            named = sharded.gathered_named(session.recorder, session.modules)
            self._stack.enter_context(named)

        if self._is(Wrapper.TENSORS):
            tensors.divide_hollow(self._model, self._plan, self._mesh)
        if self._is(Wrapper.ZERO2):
            self._claim = session.recorder.books.claim
            self._flatten(flat.hollow_whole)

    def shard_really(self) -> None:
        """Shard the model's parameters as they are, for a run."""
        self._really = True
        self._shard()
        if self._is(Wrapper.TENSORS):
            tensors.divide(self._model, self._plan, self._mesh)
        if self._is(Wrapper.ZERO2):
            self._flatten(flat.real_whole)

    def _flatten(self, whole: Callable[[list[nn.Parameter], int], Tensor]) -> None:
        parameters, ranks = flat.trained_of(self._model), self._mesh.size()
        if parameters:
            rank = self._mesh.get_rank()
            self._flat = flat.Flat(parameters, whole(parameters, ranks), ranks, rank)

    def _shard(self) -> None:
        if self._is(Wrapper.FSDP):
            shards = sharded.sharded(self._model, self._units, self._mesh, self._options)
            self._stack.enter_context(shards)

    def called(self, model: nn.Module) -> Callable[..., Any] | None:
        """DistributedDataParallel, where it is what spreads the model."""
        if not self._is(Wrapper.DDP, Wrapper.ZERO1):
            return None
        return replicated.replicated(model, self._options, really=self._really)

    def optimizer(self, choice: OptimizerChoice) -> OptimizerChoice:
        """What makes the optimizer: with ZeRO 1 and 2, of this rank's share."""
        if self._is(Wrapper.ZERO1):
            return redundancy.shared(choice, self._options)
        if not self._is(Wrapper.ZERO2) or self._flat is None:
            return choice
        own, options = self._flat, self._options

        def make(parameters: list[nn.Parameter]) -> Any:
            optimizer = make_optimizer(choice, parameters, options)
            redundancy.refuse_closure(type(optimizer), "zero 2")
            return optimizer

        def made(_: Any) -> Any:
            return Stage2(own, make, options.zero_bucket, self._claim)

        return made


@contextmanager
def spread(model: nn.Module, options: Options) -> Iterator[Alone]:
    """The rank that a trace is of, in a group for the time of the trace."""
    if options.wrapper is None:
        yield Alone()
        return
    assert options.ranks is not None  # make_options sees to it
    rank = _fullest(model, options.wrapper, options.ranks)
    with fake_ranks(options.ranks, rank) as mesh, ExitStack() as stack:
        yield Ranks(model, options, mesh, stack)


def _fullest(model: nn.Module, wrapper: Wrapper, ranks: int) -> int:
    """The rank that holds the most."""
    if wrapper is Wrapper.ZERO1:
        return redundancy.fullest(model, ranks)
    return flat.fullest(flat.trained_of(model), ranks) if wrapper is Wrapper.ZERO2 else 0
