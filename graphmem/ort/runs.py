"""Runs of a graph, one after another through one arena: what is in use after each kernel.

- A run copies its inputs to the device of the arena first, where that is not the caller's.
- It takes the memory pattern's block next, if an earlier run had the same input shapes.
- Each node in turn takes its kernel's scratch and the outputs that have a buffer of their
  own: those that the pattern has a place for, with the size that it has, lie in its block.
- A moment is what ONNX Runtime's profile shows of a node: after its kernel, with scratch given
  back, before buffers are freed that nobody reads any more.
- At the end of a run everything is freed; its outputs are the caller's, who is assumed to let
  go of them before the next run.
- Bodies (of If, Loop, Scan) are graphs with plans and patterns of their own.

Source: ``ExecutionFrame`` in onnxruntime/core/framework/execution_frame.cc, ``ExecuteKernel``
in onnxruntime/core/framework/sequential_executor.cc.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from graphmem.allocator.bfc import Arena, ArenaOutOfMemoryError, ArenaSettings, Chunk
from graphmem.ort.graph import IN_SCRATCH, Call, Execution, Graph, Node
from graphmem.ort.pattern import Pattern, PatternTrace, aligned
from graphmem.ort.planner import Kind, Plan, make_plan


@dataclass(frozen=True, slots=True)
class RunSettings:
    """``enable_mem_pattern``, ``enable_mem_reuse``, and the arena's own settings."""

    mem_pattern: bool = True
    mem_reuse: bool = True
    arena: ArenaSettings = field(default_factory=ArenaSettings)


@dataclass(frozen=True, slots=True)
class Moment:
    """The arena after one kernel; bytes.

    ``peak`` is the most that was in use so far since the session began, ``held`` what the
    arena has taken. ``depth`` is 0 in the graph itself, 1 in a body.
    """

    node: str
    op: str
    depth: int
    requested: int
    in_use: int
    peak: int
    held: int


@dataclass(frozen=True, slots=True)
class Block:
    """What one value, pattern or piece of scratch took, and when.

    ``born`` and ``freed`` are positions in ``Run.moments``: of the kernel that took it, and of
    the last one that it was there for; ``freed`` None: until the run ended. ``used`` is the
    last kernel that read it. ``module`` and ``op`` are of the node that took it.
    """

    name: str
    nbytes: int
    size: int
    born: int
    freed: int | None
    used: int
    module: str
    op: str
    is_output: bool = False
    is_scratch: bool = False
    is_pattern: bool = False
    is_input: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run: a moment for each kernel, and what was allocated."""

    moments: tuple[Moment, ...]
    blocks: tuple[Block, ...]

    @property
    def requested(self) -> int:
        """The most bytes that were asked for after any kernel."""
        return max((m.requested for m in self.moments), default=0)

    @property
    def in_use(self) -> int:
        """The most bytes in use after any kernel."""
        return max((m.in_use for m in self.moments), default=0)

    @property
    def held(self) -> int:
        """The most bytes that the arena held."""
        return max((m.held for m in self.moments), default=0)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a session takes before its first run; bytes.

    ``in_region``: it is allocated, not reserved. ``is_freed``: it is given back at once;
    ``is_dropped``: once all is there, before the first run.
    ``temporary`` are the bytes of another block, allocated after it and given back first.
    """

    nbytes: int
    in_region: bool = False
    is_freed: bool = False
    temporary: int = 0
    is_dropped: bool = False

    @property
    def stays(self) -> bool:
        """Whether it is there when the first run begins."""
        return not (self.is_freed or self.is_dropped)


def simulate(
    executions: Sequence[Execution],
    settings: RunSettings | None = None,
    setup: Sequence[Setup] = (),
) -> list[Run]:
    """One run for each execution, in one session.

    Args:
        setup: what it holds before, in the order in which it takes it: small initializers and
            packed weights.

    Raises:
        ArenaOutOfMemoryError: the arena's limit is too small.
    """
    session = _Session(settings or RunSettings())
    arena = session.arena
    dropped = []
    for one in setup:
        chunk = (arena.alloc if one.in_region else arena.reserve)(one.nbytes)
        if one.temporary:
            arena.free(arena.alloc(one.temporary))
        if one.is_freed:
            arena.free(chunk)
        elif one.is_dropped:
            dropped.append(chunk)
    for chunk in dropped:
        arena.free(chunk)
    return [_run(session, execution, run) for run, execution in enumerate(executions)]


class _Session:
    """What outlives a run: the arena, plans and patterns."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.arena = Arena(settings.arena)
        self._plans: dict[int, tuple[Graph, Plan]] = {}
        self.patterns: dict[tuple[int, int], Pattern] = {}

    def plan(self, graph: Graph) -> Plan:
        """The plan of a graph, made once."""
        if id(graph) not in self._plans:
            plan = make_plan(graph, reuse=self.settings.mem_reuse)
            self._plans[id(graph)] = graph, plan
        return self._plans[id(graph)][1]


def _run(session: _Session, execution: Execution, number: int) -> Run:
    log = _Log()
    try:
        return _finished(session, execution, log)
    except ArenaOutOfMemoryError as error:
        error.run, error.moment = number, len(log.moments)
        raise


def _finished(session: _Session, execution: Execution, log: _Log) -> Run:
    copied = [(name, n, session.arena.alloc(n)) for name, n in execution.copied.items()]
    frame = _Frame(session, execution, log, depth=0)
    frame.run()
    frame.end()
    tops = [at for at, moment in enumerate(log.moments) if moment.depth == 0]
    log.blocks += [_of_input(execution, tops, *one) for one in copied if one[2] is not None]
    for _, _, chunk in copied:
        session.arena.free(chunk)
    return Run(tuple(log.moments), tuple(log.blocks))


def _of_input(
    execution: Execution, tops: Sequence[int], name: str, nbytes: int, chunk: Chunk | None
) -> Block:
    """The copy of an input: it stays until the run ends (``FeedsFetchesManager``).

    Args:
        tops: the moments of the graph's own nodes.
    """
    nodes = zip(tops, execution.graph.nodes, strict=True)
    used = max((at for at, node in nodes if name in (*node.inputs, *node.implicit)), default=0)
    size = 0 if chunk is None else chunk.size
    return Block(name, nbytes, size, 0, None, used, "", "input", is_input=True)


@dataclass(slots=True)
class _Log:
    moments: list[Moment] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True)
class _Held:
    """A buffer that is alive; ``chunk`` None: it lies in the pattern's block."""

    chunk: Chunk | None
    nbytes: int
    born: int
    node: Node | None
    is_output: bool = False
    used: int = -1


_Block = tuple[int, Chunk | None]
"""What was asked for, and what there is for it."""


def _whole(blocks: Sequence[_Block]) -> int:
    return sum(chunk.size for _, chunk in blocks if chunk is not None)


Target = tuple[str, Node]
"""A value of the frame around, and the node there that gives it."""


def _target(node: Node, position: int) -> Target | None:
    return None if position == IN_SCRATCH else (node.outputs[position], node)


class _Frame:
    """One execution of one graph.

    ``returns`` are the outputs that the frame around it has the buffers of, by name; None for
    those in a block of the node's scratch.
    """

    def __init__(
        self,
        session: _Session,
        execution: Execution,
        log: _Log,
        depth: int,
        around: _Frame | None = None,
        returns: Mapping[str, Target | None] | None = None,
    ) -> None:
        self.session = session
        self.execution = execution
        self.graph = execution.graph
        self.plan = session.plan(execution.graph)
        self.log = log
        self.depth = depth
        self.around = around
        self.returns = returns or {}
        self.held: dict[str, _Held] = {}
        self.block: _Held | None = None
        self.key = None if execution.key is None else (id(self.graph), execution.key)
        self.pattern: Pattern | None = None
        self.trace: PatternTrace | None = None

    @property
    def now(self) -> int:
        return len(self.log.moments)

    def run(self) -> None:
        self._begin()
        for position, node in enumerate(self.graph.nodes):
            self._kernel(position, node)
            for name in self.plan.frees[position]:
                self._free(name)
        if self.trace is not None and self.key is not None:
            self.session.patterns.setdefault(self.key, self.trace.pattern())

    def _begin(self) -> None:
        """Take the block of a pattern that is known, or begin to trace one."""
        if not self.session.settings.mem_pattern or self.key is None:
            return
        self.pattern = self.session.patterns.get(self.key)
        if self.pattern is None:
            self.trace = PatternTrace()
        elif self.pattern.nbytes:
            chunk = self.session.arena.alloc(self.pattern.nbytes)
            self.block = _Held(chunk, self.pattern.nbytes, self.now, None)

    def end(self, keep: Collection[str] = ()) -> None:
        """Free what is left, the pattern's block included, but for the outputs to keep."""
        for name in [n for n in self.held if n not in keep]:
            self.release(name)
        if self.block is not None:
            self._log("memory pattern", self.block, self._last)
            self.session.arena.free(self.block.chunk)
            self.block = None

    def release(self, name: str) -> None:
        """Free one buffer, if it is there."""
        held = self.held.pop(name, None)
        if held is not None:
            self._log(name, held, self._last)
            self.session.arena.free(held.chunk)

    @property
    def _last(self) -> int | None:
        """What is freed now was there for the latest kernel; None: until the run's end."""
        return None if self.depth == 0 else self.now - 1

    def _kernel(self, position: int, node: Node) -> None:
        call = self.execution.calls.get(position, Call())
        arena = self.session.arena
        started = self.now
        for name in node.outputs:
            if name in call.early:
                self.make(name, node)
        scratch: list[_Block] = []
        stages: list[list[_Block]] = []
        self._take(call, scratch, call.before, stages)
        if call.inner:
            self._bodies(node, call)
        else:
            self._outputs(node)
        self._take(call, scratch, len(call.scratch), stages)
        self._touch(node)
        self._scratch(node, max(stages, key=_whole, default=[]), started)
        for _, chunk in reversed(scratch):
            arena.free(chunk)
        self._note(node)

    def _take(self, call: Call, taken: list[_Block], end: int, stages: list[list[_Block]]) -> None:
        """Take a kernel's blocks up to one of them, and for a moment what passes between them.

        Args:
            call: what the kernel takes.
            taken: its blocks so far.
            end: how many there are to be.
            stages: what was alive together is noted here.
        """
        arena = self.session.arena
        take = arena.reserve if call.is_reserved else arena.alloc
        passing = dict(call.passing)
        for nbytes in call.scratch[len(taken) : end]:
            taken.append((nbytes, take(nbytes)))
            brief = [(n, take(n)) for n in passing.get(len(taken), ())]
            stages.append([*taken, *brief])
            for _, chunk in reversed(brief):
                arena.free(chunk)

    def _note(self, node: Node) -> None:
        arena = self.session.arena
        self.log.moments.append(
            Moment(
                node.name,
                node.op,
                self.depth,
                requested=arena.requested,
                in_use=arena.in_use,
                peak=arena.peak,
                held=arena.held,
            )
        )

    def _bodies(self, node: Node, call: Call) -> None:
        """Run a node's bodies in turn, then make those of its outputs that they did not."""
        before: _Frame | None = None
        frames = []
        for body in call.inner:
            names = body.graph.outputs
            placed = zip(names, call.results, strict=False)
            returns = {n: _target(node, at) for n, at in placed if at is not None}
            frame = _Frame(self.session, body, self.log, self.depth + 1, self, returns)
            frame.run()
            frame.end(keep=frozenset(names))
            if before is not None:
                kept = {before.graph.outputs[at] for at in call.kept}
                for name in [n for n in before.held if n not in kept]:
                    before.release(name)
            before = frame
            frames.append(frame)
        self._outputs(node)
        for frame in frames:
            frame.end()

    def _outputs(self, node: Node) -> None:
        for name in node.outputs:
            if name:
                self.make(name, node)

    def make(self, name: str, node: Node) -> None:
        """Give an output of a node its buffer, if it has none yet."""
        if name in self.returns:
            target = self.returns[name]
            if target is not None and self.around is not None:
                self.around.make(*target)
        elif self.plan.placings[name].kind is not Kind.SHARED:
            if name not in self.held:
                self._allocate(name, node)
        elif self._is_missing(self.plan.placings[name].buffer):
            self._allocate(self.plan.placings[name].buffer, node, size_of=name)

    def _is_missing(self, buffer: str) -> bool:
        is_own = self.plan.placings[buffer].kind is not Kind.GIVEN
        return is_own and buffer not in self.held

    def _allocate(self, name: str, node: Node, size_of: str | None = None) -> None:
        nbytes = self.execution.nbytes[size_of or name]
        is_output = self.plan.placings[name].kind is Kind.OUTPUT
        chunk = None
        if is_output or not self._in_block(name, nbytes):
            chunk = self.session.arena.alloc(nbytes)
        if self.trace is not None and not is_output and self._is_traced(name):
            self.trace.allocate(name, nbytes)
        self.held[name] = _Held(chunk, nbytes, self.now, node, is_output)

    def _in_block(self, name: str, nbytes: int) -> bool:
        return self.pattern is not None and self.pattern.sizes.get(name) == aligned(nbytes)

    def _is_traced(self, name: str) -> bool:
        return self.graph.values[name].element_bytes is not None

    def _touch(self, node: Node) -> None:
        for name in (*node.inputs, *node.implicit, *node.outputs):
            held = self.held.get(self.plan.placings[name].buffer) if name else None
            if held is not None:
                held.used = self.now

    def _free(self, name: str) -> None:
        held = self.held.pop(name, None)
        if held is None:
            return
        self._log(name, held, self.now - 1)
        self.session.arena.free(held.chunk)
        if self.trace is not None:
            self.trace.free(name)

    def _log(self, name: str, held: _Held, freed: int | None) -> None:
        if held.chunk is None:
            return
        self.log.blocks.append(
            Block(
                name,
                held.nbytes,
                held.chunk.size,
                held.born,
                freed,
                max(held.used, held.born) if held.node else self.now - 1,
                held.node.module if held.node else "",
                held.node.op if held.node else "memory pattern",
                is_output=held.is_output,
                is_pattern=held.node is None,
            )
        )

    def _scratch(self, node: Node, taken: Sequence[_Block], started: int) -> None:
        for nbytes, chunk in taken:
            if chunk is not None:
                self.log.blocks.append(
                    Block(
                        f"scratch of {node.name}",
                        nbytes,
                        chunk.size,
                        started,
                        self.now,
                        self.now,
                        node.module,
                        node.op,
                        is_scratch=True,
                    )
                )
