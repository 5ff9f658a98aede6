"""An analysis does without Dynamo and what it brings, unless the code under trace asks for it.

Each program runs in a process of its own, where nobody has imported Dynamo before.
"""

from __future__ import annotations

import subprocess
import sys

_START = """
import sys
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint
import graphmem

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
x = torch.zeros(2, 4)

def imported():
    return [name for name in ("torch._dynamo", "torch._inductor", "triton") if name in sys.modules]
"""


def printed(program: str) -> list[str]:
    """The lines that a program prints."""
    command = [sys.executable, "-c", _START + program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_analysis_does_not_import_dynamo() -> None:
    lines = printed("""
for options in (
    dict(optimizer="adamw"),
    dict(optimizer="adamw", checkpoint="0"),
    dict(optimizer="sgd", checkpoint="0", checkpoint_reentrant=True),
    dict(precision="amp-fp16", clip_grad_norm=1.0),
    dict(mode="inference"),
):
    graphmem.analyze(model, x, **options)
    print(options, imported())
""")
    assert len(lines) == 5
    assert [line for line in lines if not line.endswith("[]")] == []


def test_functions_are_kept_off_dynamo_after_a_trace_as_before() -> None:
    lines = printed("""
graphmem.analyze(model, x, checkpoint='0')
functions = [Optimizer.zero_grad, Optimizer.add_param_group, checkpoint]
print([f for f in functions if hasattr(f.__wrapped__, "__dynamo_disable")])
torch.optim.SGD(model.parameters())
import torch._dynamo
print(hasattr(Optimizer.add_param_group.__wrapped__.__dynamo_disable, "_torchdynamo_disable"))
print(torch._dynamo.config is torch._dynamo.eval_frame.config)
""")
    assert lines == ["[]", "True", "True"]


def test_a_model_that_compiles_a_part_of_itself_is_traced_with_dynamo_as_it_was_written() -> None:
    lines = printed("""
compiled = []

def backend(graph, inputs):
    compiled.append(graph)
    return graph

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls = []
    def forward(self, x):
        x = self.layer(x)
        self.calls.append(1)
        return torch.compile(lambda x: x.relu() * 2, backend=backend)(x)

own = Model()
first = graphmem.analyze(own, x).to_dict()
print(imported() != [], compiled, own.calls)
print(graphmem.analyze(own, x).to_dict() == first)
own(x)
print(len(compiled))
""")
    assert lines == ["True [] []", "True", "1"]


def test_who_keeps_what_stood_for_dynamo_has_dynamo_afterwards() -> None:
    lines = printed("""
class Model(nn.Module):
    def forward(self, x):
        global kept
        import torch._dynamo as kept
        return x * 2

graphmem.analyze(Model(), x, mode="inference")
print(imported())
import torch._dynamo
print(kept is torch._dynamo, kept.reset is torch._dynamo.reset)
""")
    assert lines == ["[]", "False True"]


def test_a_failing_trace_leaves_nothing_in_dynamos_place() -> None:
    lines = printed("""
class Model(nn.Module):
    def forward(self, x):
        raise ValueError("on demand")

try:
    graphmem.analyze(Model(), x, mode="inference")
except graphmem.errors.TraceError:
    print(imported())
""")
    assert lines == ["[]"]
