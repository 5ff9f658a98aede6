"""A simulated session as a schedule: each run a step, each kernel an operation.

- Initializers lie where the graph has them, outside of the arena, and stand from the start;
  what is packed is a buffer, and what is packed alone is not there any more.
- Inputs are the caller's and count nowhere, but for the copies that a run makes of them for a
  GPU; outputs are the arena's until the run ends.
- From the second run on, the memory pattern's block is one storage for all activations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from graphmem.allocator import Placement
from graphmem.allocator.bfc import rounded as arena_bytes
from graphmem.ort.runs import Block, Run
from graphmem.schedule import (
    BEFORE,
    TOP_LEVEL,
    Category,
    Module,
    Operation,
    Phase,
    Schedule,
    Storage,
)
from graphmem.serving.session import Served
from graphmem.sources.onnx.model import Weight
from graphmem.sources.onnx.names import module_path

PATTERN = "(memory pattern)"
"""Who holds the block that all activations lie in from the second run on."""


def schedule_of(served: Served) -> tuple[Schedule, Placement]:
    """The schedule, and the bytes that each of its storages takes."""
    return _Builder(served).build()


class _Builder:
    def __init__(self, served: Served) -> None:
        self._served = served
        self._storages: list[Storage] = []
        self._sizes: list[int] = []
        self._outside = 0

    def build(self) -> tuple[Schedule, Placement]:
        self._weights()
        operations: list[Operation] = []
        scratch_sizes: list[int] = []
        held: list[int] = []
        for step, run in enumerate(self._served.runs, start=1):
            start = len(operations)
            begun = len(self._storages)
            born, freed, scratch = self._blocks(run, start)
            reads: dict[int, list[int]] = defaultdict(list)
            for storage in self._storages[begun:]:
                if storage.last_use > storage.born:
                    reads[storage.last_use].append(storage.id)
            for at, moment in enumerate(run.moments):
                index = start + at
                blocks = scratch.get(at, [])
                operations.append(
                    Operation(
                        index=index,
                        target=moment.op,
                        phase=Phase.FORWARD,
                        step=step,
                        module=module_path(moment.node or moment.op),
                        source=None,
                        reads=tuple(reads[index]),
                        allocates=tuple(born.get(at, ())),
                        frees=tuple(freed.get(at, ())),
                        scratch=(tuple(b.nbytes for b in blocks),) if blocks else (),
                    )
                )
                scratch_sizes.append(sum(b.size for b in blocks))
                held.append(self._outside + moment.held)
        schedule = Schedule(
            operations=tuple(operations),
            storages=tuple(self._storages),
            modules=tuple(self._modules()),
            steps=len(self._served.runs),
            unknown=self._served.unknown,
        )
        return schedule, Placement(tuple(self._sizes), tuple(scratch_sizes), tuple(held))

    def _weights(self) -> None:
        assembled = self._served.assembled
        copied = {held.weight for held in assembled.held if not held.packed_by}
        for name, weight in assembled.weights.items():
            if name not in assembled.dropped and name not in copied:
                self._outside += weight.nbytes
                nbytes, reader = weight.nbytes, self._reader(name)
                self._add(name, nbytes, nbytes, Category.PARAMETERS, reader)
        for held in assembled.held:
            if held.setup.stays:
                category = Category.BUFFERS if held.packed_by else Category.PARAMETERS
                reader = held.packed_by or self._reader(held.weight)
                nbytes = held.setup.nbytes
                size = arena_bytes(nbytes) if held.setup.in_region else nbytes
                self._add(held.weight, nbytes, size, category, reader)

    def _reader(self, weight: str) -> str:
        return self._served.assembled.readers.get(weight, TOP_LEVEL)

    def _shape(self, name: str) -> tuple[int, ...]:
        found = self._served.assembled.results.get(name)
        return () if found is None or found.shape is None else found.shape

    def _dtype(self, name: str) -> str:
        found = self._served.assembled.results.get(name)
        return "" if found is None or found.element is None else found.element.name.lower()

    def _add(self, name: str, nbytes: int, size: int, category: Category, reader: str) -> None:
        self._storages.append(
            Storage(
                id=len(self._storages),
                nbytes=nbytes,
                category=category,
                shape=self._shape(name),
                dtype=self._dtype(name),
                op=None,
                module=module_path(reader),
                source=None,
                born=BEFORE,
                last_use=BEFORE,
                freed=None,
                name=name,
            )
        )
        self._sizes.append(size)

    def _blocks(
        self, run: Run, start: int
    ) -> tuple[dict[int, list[int]], dict[int, list[int]], dict[int, list[Block]]]:
        """What is born and freed after each kernel of a run, and its scratch."""
        born: dict[int, list[int]] = {}
        freed: dict[int, list[int]] = {}
        scratch: dict[int, list[Block]] = {}
        end = len(run.moments) - 1
        for block in run.blocks:
            if block.is_scratch:
                scratch.setdefault(block.born, []).append(block)
                continue
            last = end if block.freed is None else block.freed
            number = self._own_storage(block, start, last)
            born.setdefault(block.born, []).append(number)
            freed.setdefault(last, []).append(number)
        return born, freed, scratch

    def _own_storage(self, block: Block, start: int, last: int) -> int:
        number = len(self._storages)
        self._storages.append(
            Storage(
                id=number,
                nbytes=block.nbytes,
                category=_category(block),
                shape=self._shape(block.name),
                dtype=self._dtype(block.name),
                op=block.op,
                module=_holder(block),
                source=None,
                born=start + block.born,
                last_use=start + min(block.used, last),
                freed=start + last,
                name=block.name,
            )
        )
        self._sizes.append(block.size)
        return number

    def _modules(self) -> Iterator[Module]:
        """One row for each node that runs, with the weights that it is the first to read."""
        assembled = self._served.assembled
        rows = Counter((m.node or m.op, m.op) for run in self._served.runs for m in run.moments)
        owned: dict[str, list[Weight]] = defaultdict(list)
        for name, reader in assembled.readers.items():
            owned[reader].append(assembled.weights[name])
        made = {node.name: node.outputs for node in assembled.execution.graph.nodes}
        for (name, op), calls in rows.items():
            outputs = [assembled.results[n] for n in made.get(name, ()) if n in assembled.results]
            yield Module(
                path=module_path(name),
                type=op,
                calls=calls,
                parameters=sum(w.numel for w in owned[name]),
                parameter_bytes=sum(w.nbytes for w in owned[name]),
                output_bytes=sum(result.nbytes for result in outputs),
            )


def _holder(block: Block) -> str:
    if block.is_pattern:
        return PATTERN
    return module_path(block.module) if block.module else TOP_LEVEL


def _category(block: Block) -> Category:
    if block.is_input:
        return Category.INPUTS
    return Category.OUTPUTS if block.is_output else Category.TEMPORARIES
