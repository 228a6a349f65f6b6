"""pytest fixtures: ``onthedot_app``, ``onthedot_clock``, ``onthedot_target`` and ``onthedot_web``.

pytest loads this module at every start, so nothing of the package is imported before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onthedot.api.app import App
    from onthedot.clock.manual import ManualClock
    from onthedot.integrations.testing import TestWeb
    from onthedot.testing import TestApp

_HOW = (
    "say which one is under test: `onthedot_app = module:app` in pytest's settings, "
    "or a fixture `onthedot_target` in conftest.py that returns it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("onthedot_app", "the App that the fixture onthedot_app tests, as module:app", default="")


@pytest.fixture
def onthedot_clock() -> ManualClock:
    """The clock of ``onthedot_app``, from 2026-01-01 UTC on. Override it to start at another moment."""
    from onthedot.clock.manual import ManualClock

    return ManualClock()


@pytest.fixture
def onthedot_target(pytestconfig: pytest.Config) -> App[Any]:
    """The app that ``onthedot_app`` tests: from the setting ``onthedot_app``, else the only one there is."""
    named = pytestconfig.getini("onthedot_app").strip("\"' ")
    return _imported(named) if named else _only_one()


@pytest.fixture
def onthedot_app(onthedot_target: App[Any], onthedot_clock: ManualClock) -> Iterator[TestApp]:
    """Your app on a memory store with a clock that the test sets; see ``onthedot.testing.TestApp``.

    ::

        async def test_reminder(onthedot_app):
            await remind.options(after=timedelta(days=3)).enqueue("bob")
            await onthedot_app.advance(days=3)
            assert sent == ["bob"]
    """
    from onthedot.testing import TestApp

    with TestApp(onthedot_target, onthedot_clock) as test:
        yield test


@pytest.fixture
def onthedot_web(request: pytest.FixtureRequest, onthedot_target: App[Any]) -> Iterator[TestWeb]:
    """The page of your app on a memory store, with a real worker; see ``onthedot.integrations.testing.TestWeb``.

    ::

        def test_page_shows_the_order(onthedot_web, page):  # page: of pytest-playwright
            send_receipt.delay(order=17)
            page.goto(onthedot_web.url)
    """
    if "onthedot_app" in request.fixturenames:
        how = "onthedot_web has a worker in real time, onthedot_app a clock that stands still: use one per test"
        pytest.fail(how, pytrace=False)
    from onthedot.integrations.testing import TestWeb

    with TestWeb(onthedot_target) as web:
        yield web


def _imported(named: str) -> App[Any]:
    from importlib import import_module

    from onthedot.api.app import open_apps

    module, colon, path = named.partition(":")
    if not (module and colon and path):
        pytest.fail(f"the setting onthedot_app is {named!r}, not module:app", pytrace=False)
    found: object = import_module(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    app = next((each for each in open_apps if each is found), None)
    if app is None:
        pytest.fail(f"the setting onthedot_app is {named!r}, which is {found!r} and not an App", pytrace=False)
    return app


def _only_one() -> App[Any]:
    import gc

    from onthedot.api.app import open_apps

    if len(open_apps) > 1:
        gc.collect()  # apps of earlier tests
    apps = list(open_apps)
    if not apps:
        pytest.fail(f"no App has been made yet: import it before the test runs, or {_HOW}", pytrace=False)
    if len(apps) > 1:
        names = ", ".join(sorted(repr(app.name) for app in apps))
        pytest.fail(f"there are {len(apps)} apps, {names}: {_HOW}", pytrace=False)
    return apps[0]
