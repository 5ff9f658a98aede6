"""``torch.compile`` in a trace: its graphs, run operator by operator.

1. Dynamo captures the model's Python, as it does for real; what it can't capture (a graph
   break) runs as it is, between two graphs.
2. Each graph goes through inductor's own ``compile_fx``: its decompositions, its passes over
   the joint graph and the min-cut partitioner, which decides what forward saves for backward
   and what backward computes again. Only the last stage is ours: instead of generating code,
   the forward and the backward graph are run node by node under the recorder, each value let
   go after its last use.
3. Inductor fuses: what a fused kernel makes and only fused kernels read never reaches memory.
   Such storages are told to the recorder as ``fused`` (see ``fusion``); ``graphmem.compiled``
   gives the peak with and without them.

Not covered: what inductor does after its graph is made (padding of matrix products, layouts
of convolutions, CUDA graphs, autotuning's buffers).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch import Tensor, fx, nn
from torch._C._dynamo.guards import set_is_in_mode_without_ignore_compile_internals
from torch._dynamo import trace_rules
from torch._subclasses import fake_tensor

from graphmem.schedule import TOP_LEVEL
from graphmem.trace.fusion import is_fusible, unmaterialised
from graphmem.trace.hollow import is_hollow
from graphmem.trace.place import Place, short_path
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced
from graphmem.trace.session import Session

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_ROOT = re.compile(r"^L\['\w+'\]\.?")


@contextmanager
def compiled_calls(model: nn.Module, session: Session) -> Iterator[CompiledCalls]:
    """What to call in a model's place: it compiles afresh, and leaves nothing compiled behind."""
    with ExitStack() as stack:
        stack.enter_context(_own_warnings_dropped())
        stack.enter_context(torch.compiler.set_stance("default"))
        torch._dynamo.reset()
        stack.callback(torch._dynamo.reset)
        stack.enter_context(torch._functorch.config.patch(enable_autograd_cache=False))
        stack.enter_context(torch._inductor.config.patch(fx_graph_cache=False, compile_threads=1))
        stack.enter_context(_recording_skipped())
        stack.enter_context(replaced(fake_tensor, "_is_plain_tensor", _has_a_value))
        yield CompiledCalls(model, session)


@contextmanager
def _own_warnings_dropped() -> Iterator[None]:
    """What Dynamo and the import of inductor warn of themselves is nothing to the user."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor", UserWarning)
        warnings.filterwarnings("ignore", ".*torch.jit.*deprecated", DeprecationWarning)
        yield


@contextmanager
def _compiling(recorder: Recorder) -> Iterator[None]:
    """Dynamo, and the guards of what it made, look away from the recorder inside."""
    with replaced(recorder, "compiles", True):
        set_is_in_mode_without_ignore_compile_internals(False)
        try:
            yield
        finally:
            set_is_in_mode_without_ignore_compile_internals(True)


@contextmanager
def _recording_skipped() -> Iterator[None]:
    """Dynamo leaves what records operators alone; it runs in the middle of what it compiles."""
    before = list(trace_rules.SKIP_DIRS)
    for room in ("graphmem.trace", "graphmem.targets"):
        trace_rules.add(room)
    try:
        yield
    finally:
        trace_rules.SKIP_DIRS[:] = before
        trace_rules._recompile_re()


_is_plain_tensor = fake_tensor._is_plain_tensor


def _has_a_value(tensor: Tensor) -> bool:
    """Whether Dynamo may note a tensor's value: it does so for the CPU's tensors, not a GPU's."""
    return _is_plain_tensor(tensor) and not is_hollow(tensor)


class CompiledCalls:
    """A model as ``torch.compile`` runs it, under a session's recorder.

    ``graphs`` counts what Dynamo captured: more than one where it had to stop between.
    """

    def __init__(self, model: nn.Module, session: Session) -> None:
        self.graphs = 0
        self._recorder = session.recorder
        self._modules = session.modules
        with self._modules.unwatched():
            # A function, which is its own deep copy: Lightning keeps one of what is given here.
            self._model = torch.compile(model, backend=lambda *graph: self._compile(*graph))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, compiling what is new to it."""
        with self._modules.unwatched(), _compiling(self._recorder):
            return self._model(*args, **kwargs)

    def _compile(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs += 1
        with self._recorder.paused():
            from torch._inductor.compile_fx import compile_fx  # it imports all of inductor

            run: Any = compile_fx(graph, inputs, inner_compile=self._runner)
        return cast(Callable[..., Any], run)

    def _runner(self, graph: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Any:
        """What stands in for generated code: takes a list of arguments, which it empties."""
        runner = _Runner(graph, self._recorder)

        def run(arguments: list[Any]) -> Any:
            try:
                return runner.boxed_run(arguments)
            finally:
                runner.env.clear()

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


class _Runner(fx.Interpreter):
    """Runs a graph's operators, told the recorder with their places."""

    def __init__(self, graph: fx.GraphModule, recorder: Recorder) -> None:
        super().__init__(graph, garbage_collect_values=True)
        self._recorder = recorder
        self._fused = unmaterialised(graph.graph)

    def run_node(self, n: fx.Node) -> Any:
        """One operator, at the place of the code that it came from."""
        generated = n.op == "call_function" and is_fusible(n)
        with self._recorder.moments.at(place_of(n), generated=generated, fused=n in self._fused):
            return super().run_node(n)


def place_of(node: fx.Node) -> Place:
    """The module and the user's line that a node of a compiled graph came from."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    innermost = list(stack.values())[-1:]
    path = _ROOT.sub("", innermost[0][0]) if innermost else ""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    source = f"{short_path(frames[-1][0])}:{frames[-1][1]}" if frames else None
    return Place(path or TOP_LEVEL, source)
