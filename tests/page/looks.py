"""Every page at three widths, each in two themes, and enlarged to 200 %: it fits, and axe finds nothing serious."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tests.page.checkout import ROOT
from tests.support.services.programs import give_up
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from tests.page.conftest import Watched

WIDTHS = (1440, 1024, 390)
THEMES = ("light", "dark")
ENLARGED = 720  # 1440 at 200 %
AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"


class Site(Protocol):
    """Serves a page."""

    @property
    def address(self) -> str: ...


def visit(tab: Watched, shop: Site, path: str) -> None:
    tab.page.goto(f"{shop.address}/{path}")
    tab.page.wait_for_selector("main :is(h1, .empty)")
    tab.page.wait_for_selector(".loading", state="detached")


def await_role(tab: Watched) -> None:
    """Until the page knows that an operator is signed in: before that it ignores the keys of actions."""
    tab.page.wait_for_selector("button[title^='Sign out']")


def assert_fits_and_is_accessible(tab: Watched) -> None:
    """Of the page that is shown. The first width is set again."""
    if not AXE.exists():
        give_up("axe-core is not installed: python page/build_page.py --packages")
    tab.page.evaluate(AXE.read_text())
    for width in (ENLARGED, *WIDTHS):
        tab.page.set_viewport_size({"width": width, "height": 900 if width in WIDTHS else 450})
        wait_until(lambda width=width: is_no_wider(tab, width))  # a chart follows the width after the next frame
        for theme in THEMES if width in WIDTHS else ():
            tab.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            serious = _serious_ones(found["violations"])
            assert not serious, (width, theme, serious)
    tab.page.set_viewport_size({"width": WIDTHS[0], "height": 900})


def is_no_wider(tab: Watched, width: int) -> bool:
    return bool(tab.page.evaluate("document.documentElement.scrollWidth") <= width)


def _serious_ones(rules: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [
        (rule["id"], node["html"], node["failureSummary"])
        for rule in rules
        if rule["impact"] in {"serious", "critical"}
        for node in rule["nodes"]
    ]
