"""The frames of a trace are its own.

A frame that another thread takes from ``sys._current_frames`` (a profiler that samples, such as
that of Dask's workers) keeps all that its function has names for: tensors would die later than
they do, at random. So the others are given the thread's first frame in their place.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from types import FrameType

from graphmem.trace.replaced import replaced


def kept_from_others() -> AbstractContextManager[None]:
    """While the context is active, no other thread takes a frame of this one."""
    thread, first, taken = threading.get_ident(), _first_frame(), sys._current_frames

    def current_frames() -> dict[int, FrameType]:
        frames = taken()
        if thread in frames:
            frames[thread] = first
        return frames

    return replaced(sys, "_current_frames", current_frames)


def _first_frame() -> FrameType:
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    return frame
