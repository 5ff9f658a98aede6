"""Snapshots of a real GPU's memory, and their replay through the allocator's model.

``load`` reads a file of ``torch.cuda.memory._dump_snapshot``; ``replay_device`` runs a
device's trace through the model of the allocator and compares the two, decision by decision;
``peak_moment`` says who holds memory at the peak and how fragmented it is; ``what_if`` runs
the requests under other settings.
"""

from graphmem.snapshots.load import load
from graphmem.snapshots.moment import (
    CallSite,
    Fragmentation,
    Holder,
    Moment,
    Room,
    peak_moment,
)
from graphmem.snapshots.peaks import allocated_levels, recorded_reserved
from graphmem.snapshots.replay import DeviceReplay, Kind, Mismatch, has_segments, replay_device
from graphmem.snapshots.stacks import Site, Sites
from graphmem.snapshots.start import starting_segments
from graphmem.snapshots.trace import Action, DeviceTrace, Entry, Frame, Snapshot
from graphmem.snapshots.what_if import what_if

__all__ = [
    "Action",
    "CallSite",
    "DeviceReplay",
    "DeviceTrace",
    "Entry",
    "Fragmentation",
    "Frame",
    "Holder",
    "Kind",
    "Mismatch",
    "Moment",
    "Room",
    "Site",
    "Sites",
    "Snapshot",
    "allocated_levels",
    "has_segments",
    "load",
    "peak_moment",
    "recorded_reserved",
    "replay_device",
    "starting_segments",
    "what_if",
]
