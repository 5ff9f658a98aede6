"""How the console script ends its process."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import atexit
import sys
from graphmem.cli import entry

class Kept:
    def __del__(self):
        print("taken apart")

kept = Kept()
kept.itself = kept
atexit.register(print, "handlers ran")
sys.argv = ["graphmem", *sys.argv[1:]]
entry()
"""


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_all_output_is_there_and_handlers_run_but_objects_are_left_to_the_system() -> None:
    done = ended("devices")
    assert done.returncode == 0
    *table, last = done.stdout.splitlines()
    assert len(table) > 5
    assert last == "handlers ran"
    assert done.stderr == ""


def test_the_exit_code_is_that_of_the_command() -> None:
    done = ended("devices", "--no-such-option")
    assert done.returncode == 2
    assert done.stdout == "handlers ran\n"
    assert "--no-such-option" in done.stderr


def test_output_that_nobody_reads_ends_the_process_too() -> None:
    command = [sys.executable, "-c", _PROGRAM, "devices"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(60)
    assert process.returncode is not None
