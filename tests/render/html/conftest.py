"""A browser, and pages of small reports to look at in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from torch import nn

import graphmem
from graphmem.report import Report

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Looked:
    """A page in the browser, with all that it asked for and complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def _said(self, message: ConsoleMessage) -> None:
        self.complaints.append(message.text)

    def sizes(self, selector: str) -> list[int]:
        """The bytes of the sizes that an element shows."""
        found = self.page.locator(f"{selector} .size")
        return [int(text) for text in found.evaluate_all("all => all.map(e => e.dataset.bytes)")]


Look = Callable[..., Looked]
Theme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium of the system; not for longer than a module, as it runs an event loop."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture
def look(browser: Browser, tmp_path: Path) -> Iterator[Look]:
    """Opens a report's page: ``look(report, width=1280, theme="light")``."""
    pages: list[Page] = []

    def opened(report: Report, width: int = 1280, theme: Theme = "light") -> Looked:
        path = tmp_path / f"{len(pages)}.html"
        report.to_html(path)
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        pages.append(page)
        looked = Looked(page)
        page.goto(path.as_uri())
        return looked

    yield opened
    for page in pages:
        page.close()


@pytest.fixture(scope="session")
def convnet() -> Report:
    """A training with a device, segments, free pieces, idle bytes and several layers."""
    blocks = [
        nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        for _ in range(3)
    ]
    model = nn.Sequential(nn.Conv2d(3, 16, 3), *blocks, nn.Flatten(), nn.LazyLinear(100))
    return graphmem.analyze(model, torch.zeros(16, 3, 66, 66), device="T4")
