"""A plan: the combinations that fit, each with its peak, cost, and what to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes, format_share
from graphmem.render.framed import framed
from graphmem.render.grid import screen_width, wrap

Line = Mapping[str, Any]
"""A combination as ``plans.Plan.to_dict`` gives it."""

_MOST_OTHERS = 5


def rendered(plan: dict[str, Any], kind: str) -> str:
    """The plan as ``table``, ``markdown`` or ``json``."""
    return framed(plan, plan["subject"], kind, lambda style: _sections(plan, style))


def as_text(plan: dict[str, Any]) -> str:
    """The plan for a terminal."""
    return rendered(plan, "table")


def _sections(plan: Line, style: str) -> Iterator[str]:
    yield "\n".join(line for text in _head(plan) for line in wrap(text, screen_width()))
    if plan["fitting"]:
        yield _table(plan["fitting"], style)
        recipes = [_recipe(i, line, style) for i, line in enumerate(plan["fitting"], start=1)]
        yield "\n\n".join(recipes)
    if plan["others"]:
        yield "Tried, and too large:"
        largest_first = sorted(plan["others"], key=lambda line: -line["headroom_bytes"])
        yield _table(largest_first[:_MOST_OTHERS], style)
    yield "\n".join(line for text in _rest(plan) for line in wrap(text, screen_width()))


def _head(plan: Line) -> Iterator[str]:
    where = plan["device"] or f"a budget of {format_bytes(plan['budget_bytes'])}"
    base = plan["base"]
    took = f"{format_bytes(base['allocated_bytes'])} allocated, {_left(base)}"
    room = f"{where} ({format_bytes(plan['allowed_bytes'])} for the run)"
    yield f"As it is{_spread(plan)} it takes {took} of {room}"
    if base["fits"]:
        yield "It fits: nothing has to be changed"
    elif plan["fitting"]:
        yield f"{len(plan['fitting'])} ways to make it fit, the cheapest first"
    elif not plan["others"] and not plan["not_tried"]:
        alone = format_bytes(plan["standing_bytes"])
        yield f"Nothing that is known can make it fit: parameters and buffers alone take {alone}"
    else:
        nearest = plan["nearest"]
        yield f"Nothing that was tried fits; the nearest is {_names(nearest)}: {_left(nearest)}"


def _spread(plan: Line) -> str:
    """How the run as it is has several GPUs, if nobody said."""
    options = plan["created_from"]
    if plan["gpus"] in (None, 1) or not options["ddp"]:
        return ""
    return f", one of {options['ranks']} under DistributedDataParallel,"


def _left(line: Line) -> str:
    spare = line["headroom_bytes"]
    return f"{format_bytes(spare)} to spare" if spare >= 0 else f"{format_bytes(-spare)} too much"


def _names(line: Line) -> str:
    return " + ".join(t["name"] for t in line["techniques"]) or "the run as it is"


def _table(lines: Sequence[Line], style: str) -> str:
    headers = ["", "change", "loses", "peak", "saves", "spare"]
    rows = [[str(i), *_row(line)] for i, line in enumerate(lines, start=1)]
    align = ["right", "left", "left", "right", "right", "right"]
    made: str = tabulate(
        rows,
        headers,
        tablefmt=style,
        colalign=align,
        disable_numparse=True,
        maxcolwidths=None if style == "github" else [None, 22, 16, None, None, None],
    )
    return made


def _row(line: Line) -> list[str]:
    spare, saved = line["headroom_bytes"], line["saved_bytes"]
    return [
        _names(line),
        _loses(line),
        format_bytes(line["allocated_bytes"]),
        format_bytes(saved),
        format_bytes(spare, signed=True),
    ]


def _loses(line: Line) -> str:
    """The kinds of loss, with the share of a step that is computed again."""
    kinds = dict.fromkeys(t["loses"] for t in line["techniques"] if t["loses"] != "nothing")
    words = ", ".join(kinds) or "nothing"
    again = line["recomputed_flops"]
    return f"{words} ({format_share(again, line['flops'])} of the FLOPs)" if again else words


def _recipe(number: int, line: Line, style: str) -> str:
    """What to write for a combination."""
    flags = " ".join(t["flag"] for t in line["techniques"])
    if style == "github":
        parts = [f"- {t['name']}: `{t['code']}` (cost: {t['cost']})" for t in line["techniques"]]
        return "\n".join([f"**{number}.** `{flags}`\n", *parts])
    texts = [f"- {t['name']}: {t['code']} (cost: {t['cost']})" for t in line["techniques"]]
    lines = [one for t in texts for one in wrap(t, screen_width(), first="   ", later="     ")]
    return "\n".join([f"{number}. {flags}", *lines])  # one line, to be copied


def _rest(plan: Line) -> Iterator[str]:
    if plan["impossible"]:
        yield f"{plan['impossible']} other combinations can't fit, whatever they leave"
    yield from _failed(plan["failed"])
    if plan["not_tried"]:
        yield f"{plan['not_tried']} more combinations were not tried"
    yield f"{plan['seconds']:.0f} s"


def _failed(lines: Sequence[Line]) -> Iterator[str]:
    """What could not be traced, one line for each reason, with the first that had it."""
    by_error: dict[str, list[str]] = {}
    for line in lines:
        by_error.setdefault(line["error"], []).append(" + ".join(line["techniques"]))
    for error, (first, *more) in by_error.items():
        yield f"{first}{f' and {len(more)} more' if more else ''}: {error}"
