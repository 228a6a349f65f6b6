"""Checks the built site: links, anchors and images lead somewhere, doctests are code, tables show no escaped pipe, and
the theme has its features.

python tests/support/documents/site_check.py site
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FEATURES = {"a search": "search", "a button that copies code": "content.code.copy", "dark colours": "slate"}
"""Parts that every page has, and the text in its HTML that shows them."""


class Page(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.escaped: set[str] = set()  # code in tables with a pipe that was escaped in the source
        self._in_cell = False
        self._in_code = False
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.anchors |= {attributes.get("id") or "", attributes.get("name") or ""}
        if tag in ("a", "img") and (link := attributes.get("href") or attributes.get("src")):
            self.links.add(link)
        self._enter(tag, inside=True)

    def handle_endtag(self, tag: str) -> None:
        self._enter(tag, inside=False)

    def _enter(self, tag: str, *, inside: bool) -> None:
        if tag == "td":
            self._in_cell = inside
        elif tag == "code":
            self._in_code = inside

    def handle_data(self, data: str) -> None:
        if self._in_cell and self._in_code and r"\|" in data:
            self.escaped.add(data)


def problems(site: Path) -> Iterator[str]:
    start = (site / "index.html").read_text("utf-8")
    for feature, text in FEATURES.items():
        if text not in start:
            yield f"index.html: the site has no longer {feature}"
    pages = {file: Page(file) for file in site.rglob("*.html")}
    for file, page in pages.items():
        name = file.relative_to(site)
        if re.search(r"<blockquote>\s*<blockquote>", file.read_text("utf-8")):
            yield f"{name}: a doctest is shown as a block quote"
        for code in sorted(page.escaped):
            yield f"{name}: {code!r} shows the backslash of its source: write <code>…&#124;…</code> in a table"
        for link in sorted(page.links):
            if not leads_somewhere(link, file, pages, site):
                yield f"{name}: {link} leads nowhere"


def leads_somewhere(link: str, file: Path, pages: dict[Path, Page], site: Path) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = file
    if parts.path:
        folder = site if parts.path.startswith("/") else file.parent
        target = (folder / unquote(parts.path).lstrip("/")).resolve()
    if target.is_dir():
        target /= "index.html"
    if target not in pages:
        return target.exists() and not parts.fragment
    return not parts.fragment or unquote(parts.fragment) in pages[target].anchors


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    found = list(problems(site))
    for problem in found:
        print(problem)
    sys.exit(len(found) > 0)


if __name__ == "__main__":
    main()
