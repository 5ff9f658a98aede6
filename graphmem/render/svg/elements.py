"""SVG elements as text, in the colours of two themes.

Colours stand in attributes, as every program reads them; a style sheet changes them where the
reader prefers dark.
"""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from graphmem.render.palette import DARK, LIGHT, STACK, Theme, ink

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Helvetica, Arial, sans-serif"
CHARACTER = 0.56
"""The width of a character of that font as a share of its size; of most letters it is less."""

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_ROLES = {
    "text": "text",
    "faint": "faint",
    "line": "line",
    "accent": "accent",
    "card": "background",
}
"""A class of the picture -> the colour of a theme that it has."""


def element(tag: str, content: str = "", **attributes: str | float) -> str:
    """An element; ``fill_opacity`` is the attribute ``fill-opacity``, ``class_`` is ``class``."""
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}={quoteattr(_clean(value))}"
        for name, value in attributes.items()
    )
    return f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"


def words(content: str) -> str:
    """A text as the content of an element."""
    return escape(_NOT_XML.sub("\ufffd", content))


def text(
    x: float, y: float, content: str, role: str = "faint", *, size: float = 11, **more: str | float
) -> str:
    """A line of text in one of the picture's colours."""
    colour = {"class_": f"gm-{role}", "fill": getattr(LIGHT, role)}
    if "class_" in more:
        more = {**more, "class_": f"gm-{role} {more['class_']}"}
    return element("text", words(content), x=x, y=y, font_size=size, **{**colour, **more})


def halo() -> dict[str, str | float]:
    """More of a text's attributes: the background around its letters."""
    return {
        "stroke": LIGHT.background,
        "stroke_width": 3.5,
        "stroke_linejoin": "round",
        "paint_order": "stroke",
        "class_": "gm-halo",
    }


def label(x: float, y: float, content: str, category: str, *, size: float = 10) -> str:
    """A line of text on the colour of a category."""
    colour = ink(LIGHT.categories[category])
    return element(
        "text", words(content), class_=f"gm-i{STACK.index(category)}", fill=colour, x=x, y=y,
        font_size=size,
    )  # fmt: skip


def rule(
    x1: float, y1: float, x2: float, y2: float, role: str = "line", **more: str | float
) -> str:
    """A line in one of the picture's colours."""
    colour = {"class_": f"gm-s-{role}", "stroke": getattr(LIGHT, role)}
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **{**colour, **more})


def area(category: str, tag: str = "path", content: str = "", **attributes: str | float) -> str:
    """A shape in the colour of a category."""
    colour = {"class_": f"gm-c{STACK.index(category)}", "fill": LIGHT.categories[category]}
    return element(tag, content, **{**colour, **attributes})


def style() -> str:
    """The style sheet: the colours of who prefers dark."""
    dark = "".join(_rules(DARK))
    return element("style", f"@media (prefers-color-scheme: dark){{{dark}}}")


def fits(content: str, width: float, size: float) -> bool:
    """Whether a text is no wider than that."""
    return len(content) * size * CHARACTER <= width


def _rules(theme: Theme) -> list[str]:
    rules = []
    for role, name in _ROLES.items():
        colour = getattr(theme, name)
        rules += [f".gm-{role}{{fill:{colour}}}", f".gm-s-{role}{{stroke:{colour}}}"]
    rules.append(f".gm-halo{{stroke:{theme.background}}}")
    for at, category in enumerate(STACK):
        colour = theme.categories[category]
        rules += [f".gm-c{at}{{fill:{colour}}}", f".gm-i{at}{{fill:{ink(colour)}}}"]
    return rules


def _clean(value: str | float) -> str:
    if isinstance(value, str):
        return _NOT_XML.sub("\ufffd", value)
    return f"{value:.2f}".rstrip("0").rstrip(".")
