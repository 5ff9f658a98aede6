"""A report as a notebook shows it: still, complete, and in the notebook's theme."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

from playwright.sync_api import Browser

from graphmem.as_text import format_bytes
from graphmem.render.palette import DARK, LIGHT, STACK
from graphmem.report import Report, read_report

_VOID = {"wbr"}


class _Parsed(HTMLParser):
    """The elements, the texts, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.titles: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.titles += [value or "" for name, value in attrs if name == "title"]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_it_has_the_peak_the_breakdown_and_the_largest_layers(convnet: Report) -> None:
    parsed = _Parsed(convnet._repr_html_())
    assert parsed.open == []
    assert "script" not in parsed.tags
    text = "".join(parsed.texts)
    assert f"Peak {format_bytes(convnet.peak.allocated_bytes)} allocated" in text
    for name, nbytes in convnet.breakdown.items():
        title = f"{name.replace('_', ' ')}: {nbytes:,} bytes"
        assert (title in parsed.titles) is (nbytes > 0)
    held = sorted(convnet.layers, key=lambda layer: -layer.live_at_peak_bytes)
    for layer in held[:8]:
        assert layer.module in parsed.texts
        assert f"{layer.live_at_peak_bytes:,} bytes" in parsed.titles


def test_the_layers_that_are_not_shown_are_summed_up(convnet: Report) -> None:
    held = sorted((layer.live_at_peak_bytes for layer in convnet.layers), reverse=True)
    rest = [nbytes for nbytes in held[8:] if nbytes]
    parsed = _Parsed(convnet._repr_html_())
    assert f"{len(rest)} more layers" in parsed.texts
    assert f"{sum(rest):,} bytes" in parsed.titles


def test_a_report_from_a_file_has_it_too(convnet: Report) -> None:
    read = read_report(json.dumps(convnet.to_dict()), "x.json")
    assert read._repr_html_() == convnet._repr_html_()


def test_a_name_that_looks_like_markup_stays_text(convnet: Report) -> None:
    evil = "<script>alert(1)</script>&amp;"
    layers = tuple(replace(layer, module=evil, type=evil) for layer in convnet.layers)
    subject = replace(convnet.subject, name=evil)
    parsed = _Parsed(replace(convnet, layers=layers, subject=subject)._repr_html_())
    assert "script" not in parsed.tags
    assert evil in parsed.texts


def test_its_colours_are_those_of_the_notebooks_theme(browser: Browser, convnet: Report) -> None:
    page = browser.new_page()
    at = next(at for at, name in enumerate(STACK) if convnet.breakdown[name])
    for attribute, theme in (("", LIGHT), ('data-jp-theme-light="false"', DARK)):
        page.set_content(f"<body {attribute}>{convnet._repr_html_()}</body>")
        colour = page.locator(".bar span").first.evaluate("e => getComputedStyle(e).background")
        wanted = theme.categories[STACK[at]]
        red, green, blue = (int(wanted[i : i + 2], 16) for i in (1, 3, 5))
        assert colour.startswith(f"rgb({red}, {green}, {blue})")
    page.close()
