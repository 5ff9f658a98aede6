"""Expandable segments: less of what is reserved lies idle between blocks."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique

_SETTING = "expandable_segments:True"


def techniques(run: Run) -> Iterator[Technique]:
    """One, where the settings do not have it."""
    given = run.options.alloc_conf
    if given is None or "expandable_segments" not in given:
        text = _SETTING if not given else f"{given},{_SETTING}"
        yield Technique(
            name="expandable segments",
            loses=Loses.NOTHING,
            cost="nothing",
            flag=f"--alloc-conf {text}",
            code=f"PYTORCH_ALLOC_CONF={text}",
            change={"alloc_conf": text},
        )
