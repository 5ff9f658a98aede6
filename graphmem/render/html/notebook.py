"""A report in a notebook: a still summary, in the colours of the notebook's own theme."""

from __future__ import annotations

import html
from collections.abc import Iterator
from operator import attrgetter

from graphmem.as_text import format_bytes, format_share
from graphmem.render.facts import category_name, facts, peak_moment, peak_size, unknown_item
from graphmem.render.html.marked import mark, marked
from graphmem.render.palette import DARK, LIGHT, STACK, Theme
from graphmem.render.rows import breakdown_rows, layer_rows
from graphmem.report import Report

_MOST_LAYERS = 8

_DARK_NOTEBOOKS = (
    '[data-jp-theme-light="false"] .graphmem',  # JupyterLab and Notebook 7
    ".vscode-dark .graphmem",
    "html[theme=dark] .graphmem",  # Colab
)

_STYLE = """
.graphmem { max-width: 60em; }
.graphmem p { margin: .3em 0; }
.graphmem .bar { display: flex; height: 1.4em; margin: .6em 0; border: 1px solid; }
.graphmem .bar span { min-width: 1px; }
.graphmem .sides { display: flex; flex-wrap: wrap; gap: 1em 3em; align-items: flex-start; }
.graphmem table { border-collapse: collapse; margin: .3em 0; font: inherit; color: inherit; }
.graphmem th, .graphmem td { padding: .15em .6em; text-align: left; background: none; }
.graphmem .size { text-align: right; font-variant-numeric: tabular-nums; }
.graphmem i { display: inline-block; width: .8em; height: .8em; margin-right: .4em;
  outline: 1px solid; outline-offset: -1px; }
.graphmem summary { cursor: pointer; }
"""


def summary(report: Report) -> str:
    """Headline, breakdown, the layers that hold most, and the facts: HTML without scripts.

    It needs no history, so a report that was read from a file has it too.
    """
    moment = marked(peak_moment(report, mark))
    parts = (
        f"<style>{_colours()}{_STYLE}</style>",
        f"<p><b>{html.escape(peak_size(report))}</b>{f', {moment}' if moment else ''}</p>",
        f'<div class="bar" aria-hidden="true">{"".join(_bar(report))}</div>',
        f'<div class="sides">{_breakdown(report)}{_layers(report)}</div>',
        _facts(report),
    )
    return f'<div class="graphmem">{"".join(parts)}</div>'


def _colours() -> str:
    dark = f"{', '.join(_DARK_NOTEBOOKS)} {{{_variables(DARK)}}}"
    return f"\n.graphmem {{{_variables(LIGHT)}}}\n{dark}"


def _variables(theme: Theme) -> str:
    return "".join(f"--gm{at}:{theme.categories[name]};" for at, name in enumerate(STACK))


def _bar(report: Report) -> Iterator[str]:
    """The breakdown beside each other, as wide as their bytes."""
    for at, name in enumerate(STACK):
        if nbytes := report.breakdown[name]:
            title = f"{category_name(name)}: {nbytes:,} bytes"
            style = f"flex:{nbytes} 0 0;background:var(--gm{at})"
            yield f'<span style="{style}" title="{title}"></span>'


def _breakdown(report: Report) -> str:
    table = breakdown_rows(report)
    rows = [
        _row(_swatch(name) + category_name(name), nbytes, format_share(nbytes, table.total))
        for name, nbytes in table.rows
    ]
    total = _row("<b>total</b>", table.total, format_share(table.total, table.total))
    return _table(("live at the peak", "bytes", "share"), [*rows, total])


def _swatch(category: str) -> str:
    return f'<i style="background:var(--gm{STACK.index(category)})"></i>'


def _layers(report: Report) -> str:
    """The layers that hold most at the peak, and all others in one row."""
    held = [layer for layer in layer_rows(report, None).rows if layer.live_at_peak_bytes]
    held.sort(key=attrgetter("live_at_peak_bytes"), reverse=True)
    rows = [
        _row(f"<code>{html.escape(layer.module)}</code>", layer.live_at_peak_bytes, layer.type)
        for layer in held[:_MOST_LAYERS]
    ]
    if rest := held[_MOST_LAYERS:]:
        name = "1 more layer" if len(rest) == 1 else f"{len(rest)} more layers"
        rows.append(_row(name, sum(layer.live_at_peak_bytes for layer in rest), ""))
    return _table(("layers", "live at the peak", "type"), rows)


def _row(name: str, nbytes: int, note: str) -> str:
    size = f'<td class="size" title="{nbytes:,} bytes">{format_bytes(nbytes)}</td>'
    return f"<tr><td>{name}</td>{size}<td>{html.escape(note)}</td></tr>"


def _table(headers: tuple[str, str, str], rows: list[str]) -> str:
    name, size, note = headers
    head = f'<th>{name}</th><th class="size">{size}</th><th>{note}</th>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _facts(report: Report) -> str:
    told = [f"<p>{label}: {marked(text)}</p>" for label, text in facts(report, mark)]
    unknown = [f"<li>{marked(unknown_item(item, mark))}</li>" for item in report.unknown]
    if unknown:
        told += ["<p>Not known, and what was assumed instead:</p>", f"<ul>{''.join(unknown)}</ul>"]
    return f"<details><summary>Facts</summary>{''.join(told)}</details>"
