"""The picture: valid XML, to scale, and nothing outside of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import graphmem
from graphmem.as_text import format_bytes
from graphmem.errors import UsageError
from graphmem.render.palette import STACK
from graphmem.render.svg.elements import CHARACTER
from graphmem.render.svg.peak import held_by_module, spread
from graphmem.report import Report, read_report

NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module", params=[{"device": "T4"}, {"target": "cpu"}], ids=str)
def report(request: pytest.FixtureRequest) -> Report:
    blocks = [nn.Sequential(nn.Linear(300, 300), nn.ReLU()) for _ in range(4)]
    return graphmem.analyze(nn.Sequential(*blocks), torch.zeros(5000, 300), **request.param)


def _drawn(report: Report) -> Element:
    return ElementTree.fromstring(report.to_svg())


def _all(picture: Element, tag: str) -> Iterator[Element]:
    return picture.iter(f"{NAMESPACE}{tag}")


def _number(element: Element, name: str) -> float:
    return float(element.attrib[name])


def _titled(picture: Element) -> list[tuple[Element, str, int]]:
    """The rectangles that say what they are: the shape, its name and its bytes."""
    found = []
    for shape in _all(picture, "rect"):
        title = shape.find(f"{NAMESPACE}title")
        if title is not None:
            name, _, size = (title.text or "").rpartition(": ")
            found.append((shape, name, int(size.removesuffix(" bytes").replace(",", ""))))
    return found


def test_it_has_a_title_and_a_description_and_no_scripts(report: Report) -> None:
    picture = _drawn(report)
    assert picture.tag == f"{NAMESPACE}svg"
    size = format_bytes(report.peak.allocated_bytes)
    assert picture.findtext(f"{NAMESPACE}title") == f"Sequential: {size} at the peak"
    description = picture.findtext(f"{NAMESPACE}desc") or ""
    for name, nbytes in report.breakdown.items():
        text = f"{name.replace('_', ' ')} {format_bytes(nbytes)} ("
        assert (text in description) is (nbytes > 0)
    assert not list(_all(picture, "script"))
    assert not [name for e in picture.iter() for name in e.attrib if name.startswith("on")]


def test_the_column_is_the_breakdown_to_scale(report: Report) -> None:
    column = [(s, name, n) for s, name, n in _titled(_drawn(report)) if ", " not in name]
    shown = {name.replace(" ", "_"): nbytes for _, name, nbytes in column}
    assert shown == {name: nbytes for name, nbytes in report.breakdown.items() if nbytes}
    high = sum(_number(shape, "height") for shape, _, _ in column)
    for shape, _, nbytes in column:
        share = nbytes / report.peak.allocated_bytes
        assert _number(shape, "height") == pytest.approx(high * share, abs=0.02)


def test_the_modules_are_the_peak_to_scale(report: Report) -> None:
    cells = [(s, name, n) for s, name, n in _titled(_drawn(report)) if ", " in name]
    assert sum(nbytes for _, _, nbytes in cells) == report.peak.allocated_bytes
    by_module = {layer.module: layer.live_at_peak_bytes for layer in report.layers}
    shown: dict[str, int] = {}
    for _, name, nbytes in cells:
        module = name.rpartition(", ")[0]
        shown[module] = shown.get(module, 0) + nbytes
    assert shown == {name: nbytes for name, nbytes in by_module.items() if nbytes}


def test_the_modules_at_any_depth_add_up_by_category(report: Report) -> None:
    for depth in (1, 2, 3):
        held = held_by_module(report.history, depth)
        for category in STACK:
            total = sum(parts[category] for parts in held.values())
            assert total == report.breakdown[category]


def test_the_highest_area_is_the_peak_on_the_axis(report: Report) -> None:
    picture = _drawn(report)
    areas = [e for e in _all(picture, "path") if e.attrib["class"].startswith("gm-c")]
    assert len(areas) == sum(any(values) for values in report.history.categories.values())
    top = min(float(y) for area in areas for y in re.findall(r"V([\d.]+)", area.attrib["d"]))
    column = [shape for shape, name, _ in _titled(picture) if ", " not in name]
    assert top == pytest.approx(min(_number(shape, "y") for shape in column), abs=0.06)


def test_no_text_leaves_the_picture(report: Report) -> None:
    name = "package/of/a/very/long/path/" * 6 + "model.py:factory"
    long = replace(report, subject=replace(report.subject, name=name))
    picture = _drawn(long)
    _, _, width, height = (float(text) for text in picture.attrib["viewBox"].split())
    for line in _all(picture, "text"):
        x, wide = _number(line, "x"), len(line.text or "") * CHARACTER * _number(line, "font-size")
        left = {"end": x - wide, "middle": x - wide / 2}.get(line.get("text-anchor", ""), x)
        assert left >= 0, line.text
        assert left + wide <= width, line.text
        assert 0 < _number(line, "y") < height


def test_a_name_that_is_no_xml_is_shown_all_the_same(report: Report) -> None:
    evil = replace(report, subject=replace(report.subject, name='<script>"&\x00]]>'))
    assert ElementTree.fromstring(evil.to_svg()).findtext(f"{NAMESPACE}title")


def test_each_colour_changes_where_dark_is_preferred(report: Report) -> None:
    text = report.to_svg()
    picture = ElementTree.fromstring(text)
    style = picture.findtext(f"{NAMESPACE}style") or ""
    assert style.startswith("@media (prefers-color-scheme: dark){")
    for shape in picture.iter():
        for name in ("fill", "stroke"):
            if shape.get(name, "none") != "none":
                classes = [f".{each}{{{name}:" for each in shape.attrib["class"].split()]
                assert any(each in style for each in classes), shape.attrib


def test_it_is_written_where_a_path_is_given(report: Report, tmp_path: Path) -> None:
    text = report.to_svg(tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text("utf-8") == text


def test_a_report_from_a_file_has_no_picture_and_says_so(report: Report) -> None:
    with pytest.raises(UsageError, match="read from a file"):
        read_report(json.dumps(report.to_dict()), "x.json").to_svg()


@given(st.lists(st.floats(0, 100), max_size=12))
def test_labels_keep_their_order_and_distance(wanted: list[float]) -> None:
    falling = sorted(wanted, reverse=True)
    places = spread(falling, 8, 0, 100)
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in places)
    gaps = [lower - upper for lower, upper in pairwise(places)]
    assert all(gap >= 8 - 1e-6 for gap in gaps)
