"""A user's mistake gets one line, that says what, where and what to do, and exit code 2."""

from __future__ import annotations

import re

import pytest

from graphmem.cli import main
from graphmem.errors import ExitCode

HERE = "tests/commands/factories.py"
BOTH_INPUTS = ("--input", "x=2x8", "--input", "mask=2x8:bool")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        # The command line itself.
        (["analyse", "x"], r"'analyse' is not a command.*did you mean 'analyze'"),
        (["analyze"], r"required: SUBJECT"),
        (["analyze", f"{HERE}:good", "--bach", "2"], r"--bach is not an option.*'--batch'"),
        (["analyze", f"{HERE}:good", "--batch", "0"], r"--batch.*'0' is not a whole number"),
        (["analyze", f"{HERE}:good", "--optimizer", "adamv"], r"'adamv'.*did you mean 'adam"),
        (["analyze", f"{HERE}:good", "--mode", "trainig"], r"'trainig'.*did you mean 'training'"),
        (["analyze", f"{HERE}:good", "--target", "gpu"], r"target: 'gpu' is not one of cuda, cpu"),
        (["analyze", f"{HERE}:good", "--precision", "bf61"], r"did you mean 'bf16'"),
        (
            ["analyze", f"{HERE}:good", "--master-weights"],
            r"master weights.*use precision bf16 or fp16",
        ),
        (["analyze", f"{HERE}:good", "--grad", "nograd"], r"grad: 'nograd' is not no_grad"),
        (["analyze", f"{HERE}:good", "--format", "jsn"], r"--format jsn.*did you mean 'json'"),
        (["analyze", f"{HERE}:good", "-o", "x.xml"], r"-o x.xml: the suffix must be one of"),
        (["analyze", f"{HERE}:good", "--timeline"], r"--timeline.*--format json"),
        (["analyze", f"{HERE}:good", "--depth", "0"], r"depth"),
        (["verify", f"{HERE}:good", "--target", "cuda"], r"--target cuda.*CPU tensors only"),
        # The subject.
        (["analyze", f"{HERE}:goof"], r"factories\.py.*'goof'.*did you mean 'good'"),
        (["analyze", "tests/commands/factory.py:good"], r"tests/commands/factory\.py"),
        (["analyze", "no.such.module:factory"], r"no\.such\.module|'no'"),
        (["analyze", "model.onnx"], r"model\.onnx: no such file"),
        (
            ["analyze", f"{HERE}:raises"],
            r"raises: ValueError: the weights are \(factories.py, line 1\d\)",
        ),
        # The inputs.
        (["analyze", f"{HERE}:no_inputs"], r"input1.*input2|input1, input2"),
        (["analyze", f"{HERE}:branches", "--input", "x=2x8"], r"mask"),
        (["analyze", f"{HERE}:good", "--input", "2x8:int63"], r"int63.*did you mean"),
        (["analyze", f"{HERE}:good", "--input", "2,8"], r"write the shape with x"),
        # The model's own code.
        (["analyze", f"{HERE}:wrong_shape"], r"in module 1 \(Linear\).*\[2, 16\] X \[32, 4\]"),
        (["analyze", f"{HERE}:good", "--input", "2x9"], r"in module 0 \(Linear\)"),
        (
            ["analyze", f"{HERE}:branches", *BOTH_INPUTS, "--strict"],
            r"factories\.py:3\d.*example value.*--input",
        ),
        (
            ["analyze", f"{HERE}:custom_operator", "--strict"],
            r"graphmem_tests\.twice has no fake kernel.*factories\.py:\d+.*register_fake",
        ),
        (
            ["analyze", f"{HERE}:branches", *BOTH_INPUTS, "--assume", "factories.py:1=true"],
            r"assume factories\.py:1: no value was asked for there",
        ),
        (["analyze", f"{HERE}:good", "--assume", "x.py=1"], r"assume: 'x.py' is not a line such"),
        (["analyze", f"{HERE}:good", "--assume", "x.py:1=y"], r"--assume.*not FILE.py:LINE=VALUE"),
        (["analyze", f"{HERE}:good", "--moe-routing", "wost"], r"routing: 'wost'.*mean 'worst'"),
        (["analyze", f"{HERE}:frozen"], r"no parameter to train"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(arguments)

    out, err = capsys.readouterr()
    assert code == ExitCode.UNUSABLE
    assert out == ""
    (line,) = err.strip().splitlines()
    assert line.startswith("graphmem: ")
    assert re.search(says, line), line


def test_an_operator_without_a_kernel_is_named_with_what_was_assumed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["analyze", f"{HERE}:custom_operator"])

    out = " ".join(capsys.readouterr().out.split())
    assert code == ExitCode.OK
    assert "graphmem_tests.twice has no fake kernel" in out
    assert "each result is as large as its largest input" in out
