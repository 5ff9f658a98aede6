"""What other tools read: a snapshot, a trace, a table of layers."""

from __future__ import annotations

import base64
import csv
import io
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import graphmem
from graphmem.cli import main
from graphmem.errors import ExitCode, UsageError
from graphmem.exports import as_csv, as_snapshot, as_trace, pickled
from graphmem.report import Report
from graphmem.report.history import Action
from graphmem.snapshots import load, replay_device


def _model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.LazyLinear(100)
    )


def _report(conf: str | None = None, device: str | None = None) -> Report:
    return graphmem.analyze(_model(), torch.zeros(16, 3, 64, 64), alloc_conf=conf, device=device)


@pytest.fixture(scope="module")
def report() -> Report:
    return _report()


@pytest.mark.parametrize("conf", [None, "expandable_segments:True", "max_split_size_mb:32"])
def test_a_predicted_snapshot_is_replayed_to_the_same_peaks(
    tmp_path: Path, conf: str | None
) -> None:
    report = _report(conf)
    path = tmp_path / "predicted.pickle"
    path.write_bytes(pickled(report))
    snapshot = load(path)
    (device,) = snapshot.devices
    replayed = replay_device(device, snapshot.settings)
    assert replayed.mismatches == ()
    if "max_split_size_mb" not in (conf or ""):  # with it, blocks are larger than their events say
        assert replayed.recorded_allocated_bytes == report.peak.allocated_bytes
    assert replayed.replayed_allocated_bytes == report.peak.allocated_bytes
    assert replayed.recorded_reserved_bytes == report.peak.reserved_bytes
    assert replayed.replayed_reserved_bytes == report.peak.reserved_bytes


def test_the_command_reads_its_own_snapshot(
    tmp_path: Path, report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "predicted.pickle"
    path.write_bytes(pickled(report))
    assert main(["snapshot", str(path), "--format", "json"]) == ExitCode.OK
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert device["recorded"] == device["replayed"]
    assert device["recorded"]["allocated_bytes"] == report.peak.allocated_bytes


def test_torchs_own_viewer_opens_it_and_shows_the_same_peak(tmp_path: Path, report: Report) -> None:
    path, page = tmp_path / "predicted.pickle", tmp_path / "viewer.html"
    path.write_bytes(pickled(report))
    viewer = [sys.executable, "-W", "ignore", "-m", "torch.cuda._memory_viz"]
    for kind in ("segment_plot", "trace_plot"):
        subprocess.run([*viewer, kind, str(path), "-o", str(page)], check=True)
    assert _peak_of_page(page.read_text()) == report.peak.requested_bytes
    listed = [*viewer, "trace", str(path)]
    shown = subprocess.run(listed, check=True, capture_output=True, text=True).stdout
    memory = report.history.memory
    assert memory is not None
    assert shown.count("cudaMalloc(") == sum(
        e.action is Action.SEGMENT_ALLOC for e in memory.events
    )
    assert "MEM[" not in shown  # every block lies in a segment that the viewer knows


def _peak_of_page(page: str) -> int:
    """The most bytes of blocks in the data that the viewer's page has in it."""
    (data,) = re.findall(r'"base64": "([^"]+)"', page)
    live = most = 0
    for entry in pickle.loads(base64.b64decode(data))["device_traces"][0]:
        live += {"alloc": 1, "free_completed": -1}.get(entry["action"], 0) * entry["size"]
        most = max(most, live)
    return most


def test_a_stack_says_who_and_where(report: Report) -> None:
    (entries,) = as_snapshot(report)["device_traces"]
    stacks = {tuple(frame["name"] for frame in entry["frames"]) for entry in entries}
    assert ("aten.convolution", "0", "step 1, forward") in stacks
    assert ("parameters", "0.weight") in stacks


def test_there_is_no_snapshot_of_a_cpu() -> None:
    report = graphmem.analyze(_model(), torch.zeros(2, 3, 8, 8), target="cpu")
    with pytest.raises(UsageError, match="use target cuda"):
        as_snapshot(report)


def test_a_trace_has_every_operator_and_counters_that_reach_the_peak(report: Report) -> None:
    events = json.loads(as_trace(report))["traceEvents"]
    operators = [e for e in events if e["ph"] == "X" and e["tid"] == 4]
    assert len(operators) == len(report.history.moments)
    counters = [e for e in events if e["ph"] == "C" and e["name"].startswith("allocated")]
    assert max(sum(e["args"].values()) for e in counters) == report.peak.allocated_bytes
    reserved = [e["args"]["reserved"] for e in events if e.get("name") == "reserved bytes"]
    assert max(reserved) == report.peak.reserved_bytes
    (peak,) = (e for e in events if e["ph"] == "i")
    assert peak["ts"] == report.peak.op_index
    for phase in ("forward", "backward", "optimizer"):
        slices = [e for e in events if e["ph"] == "X" and e["tid"] == 2 and e["name"] == phase]
        assert len(slices) == 2  # one in each step


def test_the_layers_as_a_table_are_those_of_the_report(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    assert [row["module"] for row in rows] == [layer.module for layer in report.layers]
    live = sum(int(row["live_at_peak_bytes"]) for row in rows)
    assert live == report.peak.allocated_bytes


def test_a_report_writes_them_to_files(tmp_path: Path, report: Report) -> None:
    assert report.to_csv(tmp_path / "a.csv") == (tmp_path / "a.csv").read_text()
    assert report.to_perfetto(tmp_path / "a.json") == (tmp_path / "a.json").read_text()
    snapshot = report.to_snapshot(str(tmp_path / "a.pickle"))
    assert pickle.loads((tmp_path / "a.pickle").read_bytes()) == snapshot
