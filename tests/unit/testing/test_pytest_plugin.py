"""The pytest plugin in a user's project: no set-up, and a clear message where a setting is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import onthedot

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(120)

# By its module and not by its entry point: the same with the package installed and without.
PLUGIN = ["-p", "no:onthedot", "-p", "onthedot.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
ALONE = [*PLUGIN, "-p", "no:asyncio", "-p", "no:anyio"]

SHOP = """
from datetime import timedelta
from onthedot import App

app = App("shop")
sent, ticks = [], []

@app.task(max_retries=2, backoff=[60])
async def remind(name: str, text: str = "hello") -> None:
    sent.append(name)

@app.task
def count(number: int) -> int:
    return number + 1

@app.schedule(schedule=timedelta(hours=1))
def tick() -> None:
    ticks.append("tick")
"""

TESTS = """
from datetime import timedelta
from shop import app, count, remind, sent, ticks
"""

README = """\
async def test_reminder(onthedot_app):           # memory store and a clock you turn
    await remind.options(after=timedelta(days=3)).enqueue("bob")
    await onthedot_app.advance(days=3)
    assert sent == ["bob"]
"""

LOOPS = """
import asyncio, inspect, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        names = inspect.signature(pyfuncitem.obj).parameters
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(onthedot.__file__).parents[1]))
    for name in ("ONTHEDOT_STORE", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(shop=SHOP)
    pytester.makeconftest(LOOPS)
    return pytester


def run(project: pytest.Pytester, *more: str) -> pytest.RunResult:
    return project.runpytest_subprocess(*ALONE, "-W", "error", *more)


def run_here(project: pytest.Pytester) -> pytest.RunResult:
    """In this process, which is quicker, but where other tests' apps are alive too."""
    return project.runpytest_inprocess(*ALONE)


def test_the_example_is_the_readmes() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    if "onthedot_app" in readme and "```python\nasync def test_" in readme:
        assert README in readme


def test_the_readme(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS + README)
    run(project).assert_outcomes(passed=1)


def test_without_any_async_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shop=SHOP)
    pytester.makepyfile(
        TESTS
        + """
def test_reminder(onthedot_app):
    remind.options(after=timedelta(days=3)).delay("bob")
    assert onthedot_app.sync.advance(days=3) == 73
    assert (sent, len(ticks)) == (["bob"], 72)

def test_count(onthedot_app):
    handle = count.delay(1)
    onthedot_app.assert_added(count, number=1, times=1)
    onthedot_app.sync.run_until_idle()
    assert handle.result(timeout=5) == 2

def test_each_test_begins_empty(onthedot_app, onthedot_clock):
    assert onthedot_app.tasks() == []
    assert onthedot_app.clock is onthedot_clock
    assert onthedot_app.now().isoformat() == "2026-01-01T00:00:00+00:00"

def test_unittest_style():
    from onthedot.testing import TestApp
    with TestApp(app) as test:
        count.delay(1)
        assert test.sync.drain() == 1
"""
    )
    run(pytester).assert_outcomes(passed=4)


ASYNCIO = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"
ANYIO = "@pytest.mark.anyio\n@pytest.mark.parametrize('anyio_backend', ['asyncio'])\n"


@pytest.mark.parametrize(
    ("plugin", "without", "settings", "mark"),
    [("pytest_asyncio", "anyio", ASYNCIO, ""), ("anyio", "asyncio", "", ANYIO)],
    ids=["pytest-asyncio", "anyio"],
)
def test_with_an_async_plugin(pytester: pytest.Pytester, plugin: str, without: str, settings: str, mark: str) -> None:
    if find_spec(plugin) is None:
        pytest.skip(f"{plugin} is not installed")
    pytester.makepyfile(shop=SHOP)
    pytester.makeini(f"[pytest]\n{settings}")
    pytester.makepyfile(TESTS + "import pytest\n" + mark + README)
    pytester.runpytest_subprocess(*PLUGIN, "-W", "error", "-p", f"no:{without}").assert_outcomes(passed=1)


def test_a_failing_assertion_is_readable(project: pytest.Pytester) -> None:
    project.makepyfile(
        TESTS
        + """
async def test_it(onthedot_app):
    await remind.options(after=60).enqueue("bob", text="hi")
    await count.enqueue(1)
    onthedot_app.assert_added(remind, name="ann")
"""
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">       onthedot_app.assert_added(remind, name=*ann*)",
            "E       AssertionError: remind(name='ann') was not added; at 2026-01-01 00:00:00 there is of remind:",
            "E         remind(name='bob', text='hi') scheduled for 2026-01-01 00:01:00",
            "E       others: 1 count",
        ]
    )
    assert "raise AssertionError" not in result.stdout.str()  # the frames of the library are hidden


def test_nothing_is_left_alive(project: pytest.Pytester) -> None:
    project.makepyfile(
        TESTS
        + """
import asyncio, threading
import pytest

@pytest.fixture(autouse=True)
def alone():
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert set(threading.enumerate()) <= before

@pytest.mark.parametrize("n", range(3))
async def test_it(onthedot_app, n):
    handles = await count.enqueue_many([{"number": n} for _ in range(50)])
    await remind.enqueue("x")
    await onthedot_app.advance(hours=12)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await handles[0] == n + 1
"""
    )
    result = run(project)
    result.assert_outcomes(passed=3)
    assert "Warning" not in result.stdout.str() + result.stderr.str()


# -- which app


MAIL = """
from onthedot import App
app = App("mail")

@app.task
async def send(to: str) -> None: ...
"""

BOTH = "import mail, shop\n\ndef test_it(onthedot_app):\n    assert onthedot_app.app is shop.app\n"


def test_two_apps_need_a_setting(project: pytest.Pytester) -> None:
    project.makepyfile(mail=MAIL, test_it=BOTH)
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["there are 2 apps, 'mail', 'shop': say which one is under test:*onthedot_app = module:app*"]
    )


@pytest.mark.parametrize("value", ["shop:app", '"shop:app"', "places:here.app"])
def test_the_setting(project: pytest.Pytester, value: str) -> None:
    project.makepyfile(mail=MAIL, places="import shop as here", test_it=BOTH)
    project.makeini(f"[pytest]\naddopts = --strict-config\nonthedot_app = {value}")
    run_here(project).assert_outcomes(passed=1)


def test_the_setting_in_pyproject(project: pytest.Pytester) -> None:
    project.makepyfile(mail=MAIL, test_it=BOTH)
    project.makepyprojecttoml('[tool.pytest.ini_options]\nonthedot_app = "shop:app"')
    run_here(project).assert_outcomes(passed=1)


def test_the_setting_imports_the_app(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(onthedot_app):\n    assert onthedot_app.app.name == 'shop'\n")
    project.makeini("[pytest]\nonthedot_app = shop:app")
    run(project).assert_outcomes(passed=1)


def test_fixture_names_the_app(project: pytest.Pytester) -> None:
    project.makepyfile(mail=MAIL, test_it=BOTH)
    project.makeconftest(
        """
import pytest

@pytest.fixture(scope="session")
def onthedot_target():
    from shop import app
    return app
"""
    )
    run_here(project).assert_outcomes(passed=1)


def test_two_apps_in_one_test(project: pytest.Pytester) -> None:
    project.makepyfile(mail=MAIL)
    project.makeini("[pytest]\nonthedot_app = shop:app")
    project.makepyfile(
        TESTS
        + """
import mail, pytest
from onthedot.testing import TestApp

@pytest.fixture
def mail_app(onthedot_clock):
    with TestApp(mail.app, onthedot_clock) as test:
        yield test

async def test_both(onthedot_app, mail_app):
    await mail.send.options(after=60).enqueue("ann")
    await remind.enqueue("ann")
    await onthedot_app.advance(60)
    onthedot_app.refute_added("send")
    assert await mail_app.run_until_idle() == 1
"""
    )
    run_here(project).assert_outcomes(passed=1)


def test_no_app_yet(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(onthedot_app): ...")
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["no App has been made yet: import it before the test runs, or say which one*"])


def test_apps_of_earlier_tests_do_not_count(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
from onthedot import App

def test_first():
    app = App("one")
    app.itself = app  # collected later

def test_second(onthedot_app):
    assert onthedot_app.app.name == "shop"

from shop import app
"""
    )
    run(project).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("shop", "*the setting onthedot_app is 'shop', not module:app"),
        ("shop:nothing", "*the setting onthedot_app is 'shop:nothing', which is None and not an App"),
        ("shop:remind", "*which is <task remind> and not an App"),
        ("nowhere:app", "*ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_wrong_setting(project: pytest.Pytester, value: str, message: str) -> None:
    project.makepyfile("def test_it(onthedot_app): ...")
    project.makeini(f"[pytest]\nonthedot_app = {value}")
    result = run_here(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_own_clock_is_used(project: pytest.Pytester) -> None:
    project.makepyfile(
        TESTS
        + """
import pytest
from datetime import UTC, datetime
from onthedot.testing import ManualClock

@pytest.fixture
def onthedot_clock():
    return ManualClock(datetime(2030, 5, 5, 12, 30, 0, 123456, tzinfo=UTC))

async def test_it(onthedot_app):
    await remind.options(after=timedelta(days=3)).enqueue("bob")
    await onthedot_app.advance(days=3)
    assert "bob" in sent
    assert onthedot_app.now().day == 8
"""
    )
    run(project).assert_outcomes(passed=1)


# -- with the page


def test_page_of_the_app_is_signed_in_and_shows_its_tasks(project: pytest.Pytester) -> None:
    project.makepyfile(
        TESTS
        + """
import threading
from http.client import HTTPConnection
import pytest

@pytest.fixture(autouse=True)
def alone():
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert set(threading.enumerate()) <= before

def test_browser_is_signed_in(onthedot_web):
    host = onthedot_web.address.removeprefix("http://")
    assert onthedot_web.url.startswith(onthedot_web.address + "/")
    connection = HTTPConnection(host)
    connection.request("GET", onthedot_web.url.removeprefix(onthedot_web.address))
    answer = connection.getresponse()
    answer.read()
    assert (answer.status, answer.getheader("Location")) == (303, "/")
    cookie = answer.getheader("Set-Cookie").partition(";")[0]
    connection.request("GET", "/api/v1/status", headers={"Cookie": cookie})
    answer = connection.getresponse()
    assert answer.status == 200
    assert b'"role":"operator"' in answer.read()
    connection.request("GET", "/api/v1/status")
    assert connection.getresponse().status == 401
    connection.close()

def test_tasks_run_and_operators_act(onthedot_web):
    handle = count.delay(1)
    assert handle.result(timeout=60) == 2
    remind.options(after=3600).delay("bob")
    status, found = onthedot_web.request("GET", "/tasks?q=state:succeeded")
    assert (status, [row["uuid"] for row in found["items"]]) == (200, [handle.uuid])
    (later,) = onthedot_web.request("GET", "/tasks?q=source:remind").data["items"]
    cancelled = onthedot_web.request("POST", f"/tasks/{later['uuid']}/cancel", {"reason": "test"})
    assert cancelled == (200, {"changed": True})
    assert onthedot_web.request("GET", "/nowhere").status == 404

async def test_each_test_begins_empty(onthedot_web):
    assert list(await app.find()) == []
    assert await (await count.enqueue(2)) == 3

def test_app_is_unchanged_afterwards():
    assert "memory" not in app.runtime.url
"""
    )
    run(project).assert_outcomes(passed=4)


def test_page_and_standing_clock_are_not_used_in_one_test(project: pytest.Pytester) -> None:
    project.makepyfile("from shop import app\n\ndef test_it(onthedot_app, onthedot_web): ...")
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*onthedot_web has a worker in real time, onthedot_app a clock that stands still*"])


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_page_without_its_extra_names_it(project: pytest.Pytester, missing: str) -> None:
    project.makepyfile(
        f"import sys\nsys.modules[{missing!r}] = None\nfrom shop import app\n\ndef test_it(onthedot_web): ..."
    )
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*ImportError: onthedot.web* needs {missing}: pip install 'onthedot?web?'*"])


# -- those who do not use it


def test_nothing_is_imported_until_it_is_used() -> None:
    """pytest loads the plugin wherever the package is installed, before coverage starts."""
    program = """
import sys
import onthedot.pytest_plugin
print(sorted(name for name in sys.modules if name.startswith("onthedot")))
print([name for name in ("msgspec", "asyncio", "cronsim") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['onthedot', 'onthedot.pytest_plugin']", "[]"]


def test_plain_users_see_only_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): ...")
    result = run(pytester, "--fixtures", "-q")
    for name in ("onthedot_app", "onthedot_clock", "onthedot_target", "onthedot_web"):
        assert re.search(rf"^{name} -- ", result.stdout.str(), re.MULTILINE)
    run(pytester, "--strict-config", "--strict-markers").assert_outcomes(passed=1)
