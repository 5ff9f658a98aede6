"""Snapshots that were tampered with: an answer or one line, never a bug of graphmem."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmem.allocator import parse_alloc_conf
from graphmem.cli import main
from graphmem.errors import ExitCode
from graphmem.snapshots import Action
from tests.snapshots.files import content
from tests.snapshots.recorder import Recorder

MIB = 1 << 20
EXPANDABLE = "expandable_segments:True"


def _sound(conf: str = "") -> dict[str, Any]:
    """A snapshot of a few blocks of both pools, some of them older than the trace."""
    recorder = Recorder(parse_alloc_conf(conf))
    older = [recorder.malloc(n) for n in (600, 3 * MIB, 5 * MIB)]
    since = len(recorder.entries)
    kept = [recorder.malloc(n) for n in (1000, 12 * MIB, 2 * MIB, 30 * MIB)]
    recorder.free(older[1])
    recorder.free(kept[1])
    recorder.allocator.empty_cache()
    recorder.malloc(4 * MIB)
    told = {"PYTORCH_CUDA_ALLOC_CONF": conf, "expandable_segments": conf != ""}
    return content(recorder.trace(since)) | {"allocator_settings": told}


_NUMBERS = st.sampled_from([0, 1, 512, 2 * MIB, 2 * MIB + 512, 22 * MIB, 1 << 63])
_ACTIONS = st.sampled_from([*map(str, Action), "snapshot"])
_STATES = st.sampled_from(["inactive", "active_allocated", "active_pending_free", "?"])


@st.composite
def _damaged(draw: st.DrawFn) -> dict[str, Any]:
    snapshot = copy.deepcopy(_sound(draw(st.sampled_from(["", EXPANDABLE]))))
    for _ in range(draw(st.integers(1, 3))):
        (trace,), segments = snapshot["device_traces"], snapshot["segments"]
        if not trace or not segments:
            break
        at = draw(st.integers(0, len(trace) - 1))
        event, segment = trace[at], draw(st.sampled_from(segments))
        match draw(st.integers(0, 7)):
            case 0:
                del trace[at]
            case 1:
                trace.insert(draw(st.integers(0, len(trace))), dict(event))
            case 2:
                event["action"] = draw(_ACTIONS)
            case 3:
                event[draw(st.sampled_from(["addr", "size", "stream"]))] = draw(_NUMBERS)
            case 4:
                segments.remove(segment)
            case 5:
                segment[draw(st.sampled_from(["address", "total_size"]))] = draw(_NUMBERS)
            case 6:
                segment["is_expandable"] = not segment["is_expandable"]
            case 7:
                draw(st.sampled_from(segment["blocks"]))["state"] = draw(_STATES)
    return snapshot


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(snapshot=_damaged())
def test_a_damaged_snapshot_is_no_bug(
    snapshot: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "damaged.pickle"
    path.write_bytes(pickle.dumps(snapshot))

    code = main(["snapshot", str(path), "--alloc-conf", "max_split_size_mb:40"])

    out, err = capsys.readouterr()
    assert "bug" not in err
    if code == ExitCode.UNUSABLE:
        (line,) = err.strip().splitlines()
        assert line.startswith(f"graphmem: {path}: ")
        assert out == ""
    else:
        assert (code, err) == (ExitCode.OK, "")


@pytest.mark.parametrize("conf", ["", EXPANDABLE])
def test_the_sound_one_is_replayed(
    conf: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sound.pickle"
    path.write_bytes(pickle.dumps(_sound(conf)))
    assert main(["snapshot", str(path)]) == ExitCode.OK
    assert "every decision and address is the same" in capsys.readouterr().out
