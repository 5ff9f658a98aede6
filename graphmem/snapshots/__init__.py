"""Snapshots of a real GPU's memory, and their replay through the allocator's model.

``load`` reads a file of ``torch.cuda.memory._dump_snapshot``; ``replay_device`` runs a
device's trace through the model of the allocator and compares the two, decision by decision;
``what_if`` runs its requests under other settings.
"""

from graphmem.snapshots.load import load
from graphmem.snapshots.replay import DeviceReplay, Kind, Mismatch, replay_device
from graphmem.snapshots.trace import Action, DeviceTrace, Entry, Frame, Snapshot
from graphmem.snapshots.what_if import what_if

__all__ = [
    "Action",
    "DeviceReplay",
    "DeviceTrace",
    "Entry",
    "Frame",
    "Kind",
    "Mismatch",
    "Snapshot",
    "load",
    "replay_device",
    "what_if",
]
