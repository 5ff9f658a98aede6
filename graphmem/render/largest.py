"""The largest size that fits: the answer in sentences, the curve as a table and as bars.

Each bar is one size's peak, cut into its categories by letters; its full length is what there
is for the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes, format_share, format_tensor
from graphmem.render.facts import category_name, origin
from graphmem.render.framed import framed
from graphmem.render.grid import screen_width, wrap

_LETTERS = {
    "parameters": "P",
    "gradients": "G",
    "optimizer_states": "O",
    "saved_for_backward": "S",
    "temporaries": "T",
    "workspaces": "W",
    "inputs": "I",
    "outputs": "U",
    "buffers": "B",
    "allocator_slack": "A",
}
_HEADERS = {
    "parameters": "params",
    "gradients": "grads",
    "optimizer_states": "optim",
    "saved_for_backward": "saved",
    "temporaries": "temp",
    "workspaces": "works",
    "allocator_slack": "slack",
}
_WIDTH = 48
_MOST_TERMS = 4
_MOST_COLUMNS = 4
_LEAST_SHARE = 0.05

Answer = Mapping[str, Any]
"""As ``largest.MaxBatch.to_dict`` gives it."""


def rendered(answer: dict[str, Any], kind: str) -> str:
    """The answer as ``table``, ``markdown`` or ``json``."""
    return framed(answer, answer["subject"], kind, lambda style: _sections(answer, style))


def as_text(answer: dict[str, Any]) -> str:
    """The answer for a terminal."""
    return rendered(answer, "table")


def _headline(answer: Answer) -> str:
    name, where = answer["dimension"], _where(answer)
    if not answer["size"]:
        return f"No {name} fits {where}"
    return f"The largest {name} that fits {where} is {answer['size']}"


def _where(answer: Answer) -> str:
    budget = answer["budget_bytes"]
    within = "" if budget is None else f"into {format_bytes(budget)}"
    on = "" if answer["device"] is None else f"on {answer['device']}"
    return f"{within} {on}".strip()


def _sections(answer: Answer, style: str) -> Iterator[str]:
    yield _headline(answer)
    yield "\n".join(_list(answer, style))
    if answer["curve"]["points"]:
        yield _table(answer, style)
        plot = "\n".join(_plot(answer))
        yield f"```\n{plot}\n```" if style == "github" else plot
        if answer["curve"]["turns"]:
            yield "\n".join(_turns(answer))


# -- sentences


def _list(answer: Answer, style: str) -> Iterator[str]:
    for line in _facts(answer):
        if style == "github":
            yield f"- {line}"
        else:
            yield from wrap(line, screen_width(), first="- ", later="  ")


def _facts(answer: Answer) -> Iterator[str]:
    name = answer["dimension"]
    yield f"for the run there are {format_bytes(answer['allowed_bytes'])}"
    for sized in filter(None, (answer["peak"], answer["next"])):
        yield f"{name} {sized['size']}: {_peak(sized)}"
    yield from _limit(answer)
    if answer["exceptions"]:
        yield f"smaller ones that do not fit: {', '.join(map(str, answer['exceptions']))}"
    if answer["looked_to"] is not None:
        yield f"between {answer['size']} and {answer['looked_to']} none fits; above, not looked at"
    yield from _between(answer)
    traced = ", ".join(map(str, answer["traced"]))
    yield f"traced at {traced}; all other sizes follow from these"


def _between(answer: Answer) -> Iterator[str]:
    """That sizes between two multiples were not asked, where one of them may fit."""
    step, size = answer["multiple_of"], answer["size"]
    if step > 1 and answer["next"] is not None:
        yield (
            f"only multiples of {step} were tried: of {size + 1} to {size + step - 1} some may "
            "fit; multiple-of 1 finds the largest, with more traces"
        )


def _peak(sized: Answer) -> str:
    spare = sized["headroom_bytes"]
    left = f"{format_bytes(spare)} to spare" if spare >= 0 else f"{format_bytes(-spare)} too much"
    return (
        f"{format_bytes(sized['allocated_bytes'])} allocated, "
        f"{format_bytes(sized['reserved_bytes'])} reserved, {left}"
    )


def _limit(answer: Answer) -> Iterator[str]:
    limit = answer["limited_by"]
    if limit is None:
        yield f"memory is no limit to {answer['dimension']} up to {answer['size']}"
    elif limit["kind"] == "model":
        yield f"the model takes no more: {limit['error']}"
    else:
        yield from _memory(limit, answer)


def _memory(limit: Answer, answer: Answer) -> Iterator[str]:
    total = sum(limit["breakdown"].values())
    share = format_share(limit["breakdown"][limit["term"]], total)
    held = ", ".join(_terms(limit["breakdown"]))
    yield f"what stops {answer['next']['size']}: {category_name(limit['term'])} ({share}): {held}"
    if limit["growth"] is not None and answer["size"]:
        grown = ", ".join(_terms(limit["growth"]))
        yield f"that is more than at {answer['size']} by {grown or 'nothing'}"
    if limit["request"] is not None:
        yield f"the request that fails: {_request(limit['request'])}"
    if limit["holder"] is not None:
        holder = limit["holder"]
        what = format_tensor(holder["dtype"], holder["shape"])
        who = origin(holder["op"], holder["module"], holder["source"])
        yield f"the largest tensor then: {format_bytes(holder['bytes'])} {what} of {who}"


def _request(request: Answer) -> str:
    asked = format_bytes(request["requested_bytes"])
    if request["step"] is None:
        return f"{asked} of {request['module']}, before the first operation"
    who = origin(request["op"], request["module"], request["source"])
    return f"{asked} in step {request['step']}, {request['phase']}, for {who}"


def _terms(breakdown: Mapping[str, int]) -> list[str]:
    """The largest terms, with their bytes."""
    largest = sorted(breakdown.items(), key=lambda item: -item[1])[:_MOST_TERMS]
    return [f"{category_name(name)} {format_bytes(size)}" for name, size in largest if size > 0]


# -- the curve


def _table(answer: Answer, style: str) -> str:
    points = answer["curve"]["points"]
    shown = _shown(points, len(_LETTERS) if style == "github" else _MOST_COLUMNS)
    names = [_HEADERS.get(name, name) for name in shown]
    headers = [answer["dimension"], "allocated", "reserved", *names]
    rows = [_row(point, shown) for point in points]
    align = ["right"] * len(headers)
    made: str = tabulate(rows, headers, tablefmt=style, colalign=align, disable_numparse=True)
    return made


def _shown(points: Sequence[Answer], most: int) -> list[str]:
    """The categories that are a twentieth of a peak or more; of too many the largest."""
    parts = {
        name: max(point["breakdown"][name] / max(point["allocated_bytes"], 1) for point in points)
        for name in _LETTERS
    }
    largest = sorted((n for n in parts if parts[n] >= _LEAST_SHARE), key=lambda n: -parts[n])
    return [name for name in _LETTERS if name in largest[:most]]


def _row(point: Answer, shown: Sequence[str]) -> list[str]:
    total = point["allocated_bytes"]
    shares = [format_share(point["breakdown"][name], total) for name in shown]
    return [str(point["size"]), format_bytes(total), format_bytes(point["reserved_bytes"]), *shares]


def _plot(answer: Answer) -> Iterator[str]:
    points = answer["curve"]["points"]
    whole = max(answer["allowed_bytes"], 1)
    label = max(len(str(point["size"])) for point in points)
    used: set[str] = set()
    for point in points:
        letters = _letters(point["breakdown"], whole)
        used.update(letters)
        yield f"{point['size']:>{label}} {letters[: _WIDTH + 1].ljust(_WIDTH)}|"
    names = [f"{letter} {category_name(name)}" for name, letter in _LETTERS.items()]
    legend = ", ".join(name for name in names if name[0] in used)
    yield from wrap(legend, _WIDTH + label, first=" " * (label + 1), later=" " * (label + 1))


def _letters(breakdown: Mapping[str, int], whole: int) -> str:
    """A bar whose pieces end where their sums do."""
    text, total = "", 0
    for name, letter in _LETTERS.items():
        total += breakdown[name]
        text += letter * (round(total * _WIDTH / whole) - len(text))
    return text


def _turns(answer: Answer) -> Iterator[str]:
    for turn in answer["curve"]["turns"]:
        before, to = category_name(turn["before"]), category_name(turn["to"])
        text = f"from {answer['dimension']} {turn['size']} on {to} is the largest, before {before}"
        yield from wrap(text, screen_width())
