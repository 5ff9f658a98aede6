"""The schedule: what ran, in order, over which storages.

This is the intermediate representation that every analysis reads. It is plain data and
knows nothing of torch.

- A *storage* owns bytes. Views and in-place results share one; an in-place operation or
  a view allocates nothing and extends a lifetime.
- An *operation* reads, writes and allocates storages; afterwards, before the next
  operation, some storages die.
- Two lifetimes: a storage lives from ``born`` to ``freed`` (*observed*: when Python and
  autograd let go of it, which is what eager PyTorch does) or only to ``last_use`` (what a
  compiler could do).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from graphmem.errors import InvariantError

BEFORE = -1
"""``Storage.born`` of what stands in memory before the first operation."""

TOP_LEVEL = "(top level)"
"""The module path of what runs outside of every submodule."""


@unique
class Phase(StrEnum):
    """The part of a step that an operation belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@unique
class Category(StrEnum):
    """What a storage is for, in the order in which a report lists them."""

    PARAMETERS = "parameters"
    BUFFERS = "buffers"
    GRADIENTS = "gradients"
    OPTIMIZER_STATES = "optimizer_states"
    INPUTS = "inputs"
    SAVED_FOR_BACKWARD = "saved_for_backward"
    OUTPUTS = "outputs"
    TEMPORARIES = "temporaries"
    WORKSPACES = "workspaces"


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes with one owner.

    ``nbytes`` is what was asked for, unrounded. ``shape`` and ``dtype`` are those of the
    first tensor on it. ``born`` is the index of the operation that allocates it, or
    ``BEFORE``; ``last_use`` the last operation that reads or writes it (``born`` if none
    does); ``freed`` the operation after which it dies, None if it outlives the schedule.
    ``module`` is who holds it: the module that owns the parameter (also for its gradient
    and optimizer state), else the one whose operation allocated it. ``saved_by`` is the
    module whose operation first saved it for backward. ``host`` storages lie in the
    host's memory and are no part of a GPU's. ``generated`` ones are results of kernels whose
    code a compiler generates; ``fused`` ones of these only such kernels read, which it may make
    one kernel of: then they never reach memory. ``stream`` is the one that was current when it was
    allocated, 0 the default: each has blocks of its own.
    """

    id: int
    nbytes: int
    category: Category
    shape: tuple[int, ...]
    dtype: str
    op: str | None
    module: str
    source: str | None
    born: int
    last_use: int
    freed: int | None
    saved_by: str | None = None
    host: bool = False
    name: str | None = None
    generated: bool = False
    fused: bool = False
    stream: int = 0


Scratch = tuple[tuple[int, ...], ...]
"""What a kernel allocates for itself: stages one after another, each of blocks (requested
bytes) that are alive together, in the order in which they are allocated."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator call, or the part that makes one result where it makes them in turn.

    Numbers in the tuples are ``Storage.id``. ``recomputes`` is the module whose forward a
    checkpoint runs once more in backward, None where none does.
    """

    index: int
    target: str
    phase: Phase
    step: int
    module: str
    source: str | None
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    allocates: tuple[int, ...] = ()
    frees: tuple[int, ...] = ()
    scratch: Scratch = ()
    recomputes: str | None = None

    @property
    def scratch_bytes(self) -> int:
        """The most bytes of scratch that are alive at one time, unrounded."""
        return max(map(sum, self.scratch), default=0)


@dataclass(frozen=True, slots=True)
class Module:
    """An nn.Module of the traced model, or ``TOP_LEVEL``.

    ``output_bytes`` are those of one call's outputs (the largest call).
    """

    path: str
    type: str
    calls: int
    parameters: int
    parameter_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that could not be known, and what was assumed in its place."""

    what: str
    where: str
    assumed: str
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel that a target would choose among several for an operator, and why."""

    op: str
    kernel: str
    why: str
    calls: int


@unique
class Growing(StrEnum):
    """What it is that grows."""

    GRAPH = "graph"
    TENSORS = "tensors"
    STATES = "optimizer_states"
    CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Growth:
    """What each step, or each turn of a loop inside of a step, adds to memory and keeps.

    ``storages`` are those that the last one added (of a cache: made anew, longer), ``nbytes``
    what they add, unrounded. ``root`` is the storage of which the others depend: the tensor
    whose graph keeps them, else the largest. ``holder`` is the name of the user's object that
    has it, where one was found. ``times`` is in how many steps or turns it was seen.
    """

    kind: Growing
    storages: tuple[int, ...]
    nbytes: int
    root: int
    holder: str | None
    times: int
    each_step: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """Operations in order, over storages. ``storages[i].id == i``.

    ``checkpoints`` are the modules that the options checkpoint; ``flops`` the floating-point
    operations of the last step, and those of them that a checkpoint recomputes.
    """

    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    modules: tuple[Module, ...] = ()
    steps: int = 1
    unknown: tuple[Unknown, ...] = ()
    choices: tuple[Choice, ...] = ()
    growths: tuple[Growth, ...] = ()
    checkpoints: tuple[str, ...] = ()
    flops: tuple[int, int] = (0, 0)


def verify(schedule: Schedule) -> None:
    """Check that the schedule holds together.

    Every read and write is of a storage that was born and has not died; nothing is born
    or dies twice; birth, last use and death of a storage agree with the operations.

    Raises:
        InvariantError: naming the operation and the storage.
    """
    storages = schedule.storages
    for position, storage in enumerate(storages):
        if storage.id != position:
            raise InvariantError(f"storage {storage.id} stands at position {position}")
        if storage.nbytes < 0:
            raise InvariantError(f"storage {storage.id} has {storage.nbytes} bytes")
    alive = {s.id for s in storages if s.born == BEFORE}
    born, last_use, freed = set(alive), dict.fromkeys(alive, BEFORE), {}
    for index, op in enumerate(schedule.operations):
        where = f"operation {index} ({op.target})"
        if op.index != index:
            raise InvariantError(f"{where} says that its index is {op.index}")
        for nbytes in (n for stage in op.scratch for n in stage if n < 0):
            raise InvariantError(f"{where} has {nbytes} bytes of scratch")
        if not 1 <= op.step <= schedule.steps:
            raise InvariantError(f"{where} is in step {op.step} of {schedule.steps}")
        for i in op.allocates:
            if not 0 <= i < len(storages):
                raise InvariantError(f"{where}: storage {i} does not exist")
            if i in born:
                raise InvariantError(f"{where}: storage {i} is born twice")
            born.add(i)
            alive.add(i)
            last_use[i] = index
            if storages[i].born != index:
                raise InvariantError(f"{where}: storage {i} says {storages[i].born} is its birth")
        for i in (*op.reads, *op.writes):
            if i not in alive:
                raise InvariantError(f"{where}: storage {i} is used before birth or after death")
            last_use[i] = index
        for i in op.frees:
            if i not in alive:
                raise InvariantError(f"{where}: storage {i} dies twice or before its birth")
            alive.remove(i)
            freed[i] = index
    for storage in storages:
        if storage.id not in born:
            raise InvariantError(f"storage {storage.id} is never born")
        if storage.last_use != last_use[storage.id]:
            raise InvariantError(f"storage {storage.id}: last use is {last_use[storage.id]}")
        if storage.freed != freed.get(storage.id):
            raise InvariantError(f"storage {storage.id}: death is {freed.get(storage.id)}")
