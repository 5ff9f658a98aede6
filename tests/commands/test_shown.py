"""What a person sees besides results: units, waiting, quiet, verbose, completion."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from contextlib import redirect_stderr

import pytest

from graphmem import as_text
from graphmem.as_text import format_bytes, in_unit
from graphmem.cli import main
from graphmem.commands import console
from graphmem.commands.console import CONSOLE, Verbosity
from graphmem.commands.progress import Progress
from graphmem.errors import ExitCode

SUBJECT = "tests/sweeps/factories.py:plain"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    screen = _Terminal()
    monkeypatch.setattr(console, "_PATIENCE", 0.02)
    monkeypatch.setattr(console, "_EVERY", 0.02)
    return screen


@pytest.mark.parametrize(
    ("unit", "nbytes", "text"),
    [
        ("B", 12_345_678, "12,345,678 B"),
        ("KiB", 1536, "1.50 KiB"),
        ("MiB", 512, "0.00 MiB"),
        ("GiB", 3 << 40, "3072.00 GiB"),
        ("MB", 12_345_678, "12.35 MB"),
        ("TB", 10**12, "1.00 TB"),
        (None, 1536, "1.50 KiB"),
    ],
)
def test_sizes_are_in_the_readers_unit(unit: str | None, nbytes: int, text: str) -> None:
    with in_unit(unit):
        assert format_bytes(nbytes) == text
        assert format_bytes(-nbytes) == f"-{text}"
        assert format_bytes(nbytes, signed=True) == f"+{text}"
    assert format_bytes(1536) == "1.50 KiB"


def test_every_unit_is_known() -> None:
    for unit in as_text.UNITS:
        with in_unit(unit):
            assert format_bytes(1).endswith(f" {unit}")


def test_a_whole_table_is_in_one_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", SUBJECT, "--unit", "kb"]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert " kB" in printed
    assert "iB" not in printed
    assert main(["analyze", SUBJECT, "--unit", "kib"]) == ExitCode.OK
    assert main(["analyze", SUBJECT, "--unit", "pound"]) == ExitCode.UNUSABLE
    assert "--unit pound: not one of B, KiB" in capsys.readouterr().err


def test_what_takes_long_is_told_on_a_terminal_and_taken_away(terminal: _Terminal) -> None:
    with redirect_stderr(terminal), CONSOLE.told(Verbosity.NORMAL, "graphmem analyze"):
        time.sleep(0.2)
    assert "graphmem analyze, 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_bar_is_not_drawn_over(terminal: _Terminal) -> None:
    told = CONSOLE.told(Verbosity.NORMAL, "waiting")
    with redirect_stderr(terminal), told, Progress(2, "cases") as progress:
        time.sleep(0.1)
        progress.step("one")
    assert "1/2 cases, 0 s  one" in terminal.getvalue()
    assert "waiting" not in terminal.getvalue()


def test_quiet_is_silent_on_a_terminal_too(terminal: _Terminal) -> None:
    told = CONSOLE.told(Verbosity.QUIET, "waiting")
    with redirect_stderr(terminal), told, Progress(2, "cases") as progress:
        print("a library has something to say", file=sys.stderr)
        time.sleep(0.1)
        progress.step()
    assert terminal.getvalue() == ""


def test_a_pipe_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with CONSOLE.told(Verbosity.NORMAL, "waiting"), Progress(2, "cases") as progress:
        progress.step()
    assert capsys.readouterr().err == ""


def test_an_error_is_one_line_and_with_verbose_where_it_comes_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option, lines in (("--quiet", 1), ("--unit=B", 1)):
        assert main(["analyze", "no.py:model", option]) == ExitCode.UNUSABLE
        assert capsys.readouterr().err.count("\n") == lines
    assert main(["analyze", "no.py:model", "--verbose"]) == ExitCode.UNUSABLE
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.splitlines()[-1].startswith("graphmem: no.py: no such file")


def test_verbose_says_how_long_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--verbose"]) == ExitCode.OK
    assert capsys.readouterr().err.startswith("graphmem devices: 0.")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_shell_completes_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == ExitCode.OK
    script = capsys.readouterr().out
    assert "max-batch" in script
    assert "--alloc-conf" in script or "alloc-conf" in script


def test_bash_offers_what_begins_alike() -> None:
    pytest.importorskip("shtab")
    made = [sys.executable, "-m", "graphmem", "completion", "bash"]
    script = subprocess.run(made, check=True, capture_output=True, text=True).stdout
    asked = (
        f"{script}\nCOMP_WORDS=(graphmem analyze --alloc); COMP_CWORD=2; "
        'COMP_LINE="graphmem analyze --alloc"; _shtab_graphmem; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "--alloc-conf"


def test_an_unknown_shell_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bsh"]) == ExitCode.UNUSABLE
    assert "did you mean 'bash'?" in capsys.readouterr().err
