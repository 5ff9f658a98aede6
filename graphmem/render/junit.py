"""Checked models as JUnit XML, which continuous integration systems show as tests.

Source of the form: the schema of Jenkins' xUnit plugin (junit-10.xsd), which GitLab, Azure and
others read: testsuites, testsuite, testcase with failure or error, properties, system-out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from graphmem.as_text import format_bytes
from graphmem.render.check import words

Row = Mapping[str, Any]

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(rows: Sequence[Row]) -> str:
    """A test suite with a test for each model."""
    unusable = sum(_is_unusable(row) for row in rows)
    counts = {
        "tests": str(len(rows)),
        "failures": str(sum(not row["ok"] for row in rows) - unusable),
        "errors": str(unusable),
    }
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "graphmem", **counts})
    for row in rows:
        _case(suite, row)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(suite: ElementTree.Element, row: Row) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": "graphmem.check", "name": _clean(row["name"])}
    )
    for failure in row["failures"]:
        tag = "error" if failure["kind"] == "not-analyzed" else "failure"
        text = _clean(failure["text"])
        found = ElementTree.SubElement(case, tag, {"type": failure["kind"], "message": text})
        found.text = f"{words(failure['kind'])}: {text}"
    if row["allocated_bytes"] is not None:
        out = ElementTree.SubElement(case, "system-out")
        out.text = (
            f"{_clean(row['subject'])}: peak {format_bytes(row['allocated_bytes'])} allocated"
        )


def _is_unusable(row: Row) -> bool:
    return any(failure["kind"] == "not-analyzed" for failure in row["failures"])


def _clean(text: str) -> str:
    """Without the characters that XML can't hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
