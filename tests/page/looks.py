"""Every page at three widths and in two themes: it fits, and axe finds nothing serious."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.page.checkout import ROOT
from tests.support.services.programs import give_up

if TYPE_CHECKING:
    from tests.page.conftest import Shop, Watched

LOOKS = ((1440, "light"), (1024, "dark"), (390, "light"))
AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"


def visit(tab: Watched, shop: Shop, path: str) -> None:
    tab.page.goto(f"{shop.address}/{path}")
    tab.page.wait_for_selector("main :is(h1, .empty)")
    tab.page.wait_for_selector(".loading", state="detached")


def assert_fits_and_is_accessible(tab: Watched) -> None:
    """Of the page that is shown. The first width is set again."""
    if not AXE.exists():
        give_up("axe-core is not installed: python page/build_page.py --packages")
    tab.page.evaluate(AXE.read_text())
    for width, theme in LOOKS:
        tab.page.set_viewport_size({"width": width, "height": 900})
        tab.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        tab.page.wait_for_function(  # a chart follows the width after the next frame
            "width => document.documentElement.scrollWidth <= width", arg=width
        )
        found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = _serious_ones(found["violations"])
        assert not serious, serious
    tab.page.set_viewport_size({"width": LOOKS[0][0], "height": 900})


def _serious_ones(rules: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [
        (rule["id"], node["html"], node["failureSummary"])
        for rule in rules
        if rule["impact"] in {"serious", "critical"}
        for node in rule["nodes"]
    ]
