"""Rules that keep data out of markup and the page inside its origin. Visible text: page/test/visible_text.mjs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.page.checkout import ROOT

SOURCES = sorted(path for path in (ROOT / "page" / "src").rglob("*") if path.suffix in {".ts", ".tsx", ".css"})
FORBIDDEN = (
    r"innerHTML", r"outerHTML", r"insertAdjacentHTML", r"dangerouslySetInnerHTML", r"\beval\(", r"new Function",
    r"document\.write", r"srcdoc", r"javascript:",
)  # fmt: skip
LINE_LIMIT = 400


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_source_makes_markup_or_code_of_data(path: Path) -> None:
    text = path.read_text()
    assert [pattern for pattern in FORBIDDEN if re.search(pattern, text)] == []
    assert len(text.splitlines()) <= LINE_LIMIT


def test_computed_addresses_are_in_the_link_component_only() -> None:
    found = [
        path.name for path in SOURCES if re.search(r"\b(href|src|formaction)=\{|<form[^>]*\baction=", path.read_text())
    ]
    assert [name for name in found if name != "link.tsx"] == []


def test_no_source_names_another_origin() -> None:
    hosts = [
        (path.name, address)
        for path in SOURCES
        for address in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", path.read_text())
        if not address.endswith("w3.org")  # the name of the SVG namespace
    ]
    assert hosts == []
