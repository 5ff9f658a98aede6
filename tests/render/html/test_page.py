"""The page in a real browser: what it shows is the report, and every hand can use it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib import resources
from pathlib import Path

import onnx
import onnx.parser
import pytest
from playwright.sync_api import Page

from graphmem.as_text import format_bytes
from graphmem.cli import main
from graphmem.render.palette import DARK, LIGHT, STACK
from graphmem.report import Report
from tests.render.html.conftest import Look, Looked, Theme

_CONTROLS = "a[href], button, input, summary, [tabindex]"


def _rgb(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


def _background(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280, 2560])
def test_it_loads_without_a_complaint_and_fits_the_window(
    width: int, theme: Theme, look: Look, convnet: Report
) -> None:
    looked = look(convnet, width, theme)
    assert looked.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in looked.requests)
    assert looked.page.evaluate("document.documentElement.scrollWidth") == width
    assert _background(looked.page) == _rgb((DARK if theme == "dark" else LIGHT).background)
    assert looked.page.locator("#chart .area").count() >= 5


def test_the_figures_are_those_of_the_json(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    assert convnet.peak.device_bytes is not None
    assert convnet.device is not None
    assert looked.sizes("#answer") == [convnet.peak.allocated_bytes]
    assert looked.sizes("#tiles") == [
        convnet.peak.requested_bytes,
        convnet.peak.allocated_bytes,
        convnet.peak.reserved_bytes,
        *sorted(set(convnet.peak.device_bytes)),
        convnet.device["capacity_bytes"],
        *([convnet.idle_bytes] if convnet.idle_bytes else []),
    ]
    shown = [convnet.breakdown[name] for name in reversed(STACK) if _ever(convnet, name)]
    assert looked.sizes("#breakdown tbody") == shown
    assert looked.sizes("#breakdown tfoot") == [convnet.peak.allocated_bytes]
    assert looked.sizes("#idle")[-1] == convnet.last_use_peak_bytes


def _ever(report: Report, category: str) -> bool:
    return any(report.history.categories[category])


def test_the_layers_are_those_of_the_json(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    fields = (
        *("parameter_bytes", "gradient_bytes", "optimizer_bytes", "output_bytes", "saved_bytes"),
        *("forward_peak_bytes", "backward_peak_bytes", "live_at_peak_bytes"),
    )
    sizes = [getattr(layer, field) for layer in convnet.layers for field in fields]
    assert looked.sizes("#layers-table tbody") == [size for size in sizes if size]
    total = sum(layer.live_at_peak_bytes for layer in convnet.layers)
    assert looked.sizes("#layers-table tfoot")[-1] == total == convnet.peak.allocated_bytes


def test_the_largest_tensors_are_those_of_the_json(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    assert looked.sizes("#holders-table tbody") == [h.bytes for h in convnet.holders]


def test_every_operation_shows_its_categories_and_tensors(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    history = convnet.history
    chart = looked.page.locator("#chart [role=slider]")
    chart.press("Home")
    for moment in history.moments[:120]:
        at = moment.index
        shown = [n for n in reversed(STACK) if _ever(convnet, n)]
        assert looked.sizes("#legend tbody") == [history.categories[n][at] for n in shown]
        assert looked.sizes("#legend tfoot") == [moment.allocated_bytes]
        assert looked.sizes("#live tfoot")[-1] == moment.allocated_bytes
        live = [t.bytes for t in history.tensors if t.born <= at and (t.freed or at) >= at]
        largest = sorted(live, reverse=True)[:25]
        assert looked.sizes("#live tbody") == largest
        parts = looked.sizes("#live tbody") + looked.sizes("#live tfoot")[:-1]
        assert sum(parts) == moment.allocated_bytes
        where = looked.page.locator("#where").inner_text()
        assert moment.op in where
        assert moment.module in where
        assert (moment.source or "-") in where
        chart.press("ArrowRight")


def test_the_peak_is_pinned_and_shown_first(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    title = looked.page.locator("#now-title")
    assert f"Operation {convnet.peak.op_index:,}" in title.inner_text()
    looked.page.locator("#chart [role=slider]").press("End")
    assert f"Operation {len(convnet.history.moments) - 1:,}" in title.inner_text()
    looked.page.locator("#to-peak").click()
    assert f"Operation {convnet.peak.op_index:,}" in title.inner_text()
    size = format_bytes(convnet.peak.allocated_bytes)
    assert looked.page.locator("#chart text", has_text=f"peak {size}").count() == 1


def test_the_pointer_shows_an_operation_and_a_click_keeps_it(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    page, title = looked.page, looked.page.locator("#now-title")
    first = title.inner_text()
    box = page.locator("#chart [role=slider]").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.5
    page.mouse.move(x, y)
    page.locator("#tip:not([hidden])").wait_for()
    hovered = title.inner_text()
    assert hovered != first
    page.mouse.move(5, 5)
    page.locator("#tip").wait_for(state="hidden")
    assert title.inner_text() == first
    page.mouse.click(x, y)
    page.mouse.move(5, 5)
    assert title.inner_text() == hovered


def _shown_range(looked: Looked) -> tuple[int, int]:
    return tuple(
        looked.page.evaluate("""() => {
            const window = document.querySelector('#overview .window');
            return [Number(window.getAttribute('x')), Number(window.getAttribute('width'))];
        }""")
    )


def test_it_zooms_by_keys_buttons_and_dragging(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    page = looked.page
    overview = page.locator("#overview")
    assert overview.is_hidden()
    page.locator("#chart [role=slider]").press("+")
    assert overview.is_visible()
    zoomed = _shown_range(looked)
    page.locator("#in").click()
    assert _shown_range(looked)[1] == pytest.approx(zoomed[1] / 2, rel=0.05)
    page.locator("#all").click()
    assert overview.is_hidden()
    box = page.locator("#chart [role=slider]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 150)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 150, steps=4)
    page.mouse.up()
    assert overview.is_visible()
    page.locator("#chart [role=slider]").press("0")
    assert overview.is_hidden()


@pytest.mark.parametrize("width", [375, 1280])
def test_the_keyboard_reaches_every_control_and_shows_where_it_is(
    width: int, look: Look, convnet: Report
) -> None:
    page = look(convnet, width).page
    page.locator("#chart [role=slider]").press("+")
    page.evaluate("document.activeElement.blur(); window.getSelection().removeAllRanges()")
    count = page.evaluate(
        f"[...document.querySelectorAll('{_CONTROLS}')]"
        ".filter(e => e.checkVisibility() && !e.disabled)"
        ".map((e, at) => { e.dataset.control = at; }).length"
    )
    reached: dict[str, str] = {}
    page.locator("body").focus()
    for _ in range(count + 2):
        page.keyboard.press("Tab")
        number, outline = page.evaluate(
            "[document.activeElement.dataset.control, "
            "getComputedStyle(document.activeElement).outlineStyle]"
        )
        if number is not None:
            reached[number] = outline
    assert len(reached) == count
    assert set(reached.values()) <= {"solid", "auto"}


def test_every_control_has_a_name(look: Look, convnet: Report) -> None:
    page = look(convnet).page
    nameless = page.evaluate(
        f"[...document.querySelectorAll('{_CONTROLS}')].filter(e => !(e.textContent.trim() "
        "|| e.ariaLabel || e.labels?.length || e.getAttribute('aria-labelledby')))"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert nameless == []


def test_the_theme_is_the_systems_until_it_is_chosen(look: Look, convnet: Report) -> None:
    page = look(convnet, theme="dark").page
    button = page.locator("#theme")
    assert button.inner_text() == "Light"
    button.click()
    assert _background(page) == _rgb(LIGHT.background)
    assert button.inner_text() == "Dark"
    page.emulate_media(color_scheme="dark")
    assert _background(page) == _rgb(LIGHT.background)


def test_layers_sort_by_a_click_and_by_a_key(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    head = looked.page.locator("#layers-table th", has_text="live at peak")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    column = looked.page.locator("#layers-table tbody tr > :last-child")
    script = "all => all.map(e => Number(e.querySelector('.size')?.dataset.bytes ?? 0))"
    sizes = sorted((layer.live_at_peak_bytes for layer in convnet.layers), reverse=True)
    assert column.evaluate_all(script) == sizes
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert column.evaluate_all(script) == sizes[::-1]


def test_layers_are_searched_by_all_words(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    looked.page.locator("#layers-table input").fill("1. conv")
    rows = looked.page.locator("#layers-table tbody th")
    wanted = [e.module for e in convnet.layers if "1." in e.module and e.type == "Conv2d"]
    assert rows.all_inner_texts() == wanted
    of = f"{len(wanted)} of {len(convnet.layers)} rows"
    assert looked.page.locator("#layers-table .count").inner_text() == of


def test_only_idle_tensors_are_shown_where_asked(look: Look, convnet: Report) -> None:
    holders = tuple(
        replace(holder, idle_bytes=holder.bytes if at % 3 == 0 else 0)
        for at, holder in enumerate(convnet.holders)
    )
    looked = look(replace(convnet, holders=holders))
    looked.page.locator("#only-idle").press("Space")
    idle = [holder.idle_bytes for holder in holders if holder.idle_bytes]
    assert looked.sizes("#holders-table tbody") == idle


def test_the_treemaps_areas_are_bytes(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    cells = looked.page.locator("#treemap [data-cell]").evaluate_all(
        "all => all.map(e => [e.parentNode.classList[0], e.width.baseVal.value, "
        "e.height.baseVal.value])"
    )
    history = convnet.history
    wanted = {
        (t.category, t.module)
        for t in history.tensors
        if t.born <= convnet.peak.op_index and (t.freed or math.inf) >= convnet.peak.op_index
    }
    assert len(cells) >= len({category for category, _ in wanted})
    assert {int(name[1:]) for name, *_ in cells} == {
        at for at, name in enumerate(STACK) if convnet.breakdown[name]
    }
    first = looked.page.locator("#treemap svg")
    first.focus()
    first.press("Home")
    text = first.get_attribute("aria-valuetext") or ""
    assert "of the peak" in text
    first.press("Enter")
    assert looked.page.locator("#layers-table input").input_value() in text


def test_segments_and_their_free_pieces_are_drawn_and_listed(look: Look, convnet: Report) -> None:
    looked = look(convnet)
    memory = convnet.history.memory
    assert memory is not None
    pieces = [piece for segment in memory.segments for piece in segment.pieces]
    free = [piece.bytes for piece in pieces if piece.is_free]
    assert free
    assert looked.page.locator("#memory-maps [data-cell]").count() == len(pieces)
    assert looked.page.locator("#memory-maps .free[data-cell]").count() == len(free)
    total = sum(segment.bytes for segment in memory.segments)
    reserved = convnet.peak.reserved_bytes
    sentence = [total, total - sum(free), sum(free), max(free), reserved]
    assert looked.sizes("#memory-text") == sentence
    looked.page.locator("#memory-details summary").click()
    assert looked.sizes("#segments-table tfoot") == [total, sum(free)]


def test_paper_is_light_and_everything_is_open(look: Look, convnet: Report) -> None:
    page = look(convnet, theme="dark").page
    page.locator("#theme").click()
    page.locator("#theme").click()
    page.emulate_media(media="print")
    assert _background(page) == _rgb(LIGHT.background)
    assert page.locator(".bar").is_hidden()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_without_an_allocator_it_says_that_there_are_no_segments(
    look: Look, convnet: Report
) -> None:
    history = replace(convnet.history, memory=None)
    looked = look(replace(convnet, ask_history=lambda: history))
    assert looked.complaints == []
    assert "There are none" in looked.page.locator("#memory-text").inner_text()
    assert looked.page.locator("#memory-details").is_hidden()


def test_a_session_of_onnx_runtime_has_a_page(look: Look, tmp_path: Path, browser: object) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, 64] x) => (float[N, 64] y) '
        "{ a = Sigmoid(x) y = Tanh(a) }"
    )
    onnx.save(model, tmp_path / "model.onnx")
    target = tmp_path / "page.html"
    run = ["analyze", str(tmp_path / "model.onnx"), "--dim", "N=1000"]
    assert main([*run, "-o", str(target)]) == 0
    assert main([*run, "-o", str(tmp_path / "report.json")]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    looked = look(_Written(target.read_text()))
    assert looked.complaints == []
    assert looked.sizes("#answer") == [report["peak"]["allocated_bytes"]]


class _Written:
    """What can be looked at like a report: a page that is there already."""

    def __init__(self, page: str) -> None:
        self._page = page

    def to_html(self, path: Path) -> None:
        path.write_text(self._page)


def test_the_page_writes_bytes_as_the_tables_do(look: Look, convnet: Report) -> None:
    page = look(convnet).page
    script = (resources.files("graphmem.render.html") / "assets" / "text.js").read_text("utf-8")
    numbers = [0, 1, 1023, 1024, 1029, 10240, 1048575, 1048576, 1073741823, 3 * 2**40]
    numbers += [7919**power * 37 % 2**45 for power in range(2, 60)]
    written = page.evaluate(f"numbers => {{ {script}; return numbers.map(formatBytes); }}", numbers)
    assert written == [format_bytes(number) for number in numbers]
