"""``pip install`` into an empty environment, with neither node nor npm on PATH."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.faults import LONG
from tests.page.checkout import ROOT, UNREACHABLE, Checkout
from tests.page.conftest import TOKEN
from tests.support.process_guard import start_guarded
from tests.support.services.ports import free_port
from tests.support.services.programs import give_up
from tests.support.waits import SOON, wait_until
from tests.unit.cli.terminal import terminal

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.once, pytest.mark.timeout(600)]

INSTALL_TIME = 30.0  # seconds
NODE_PROGRAMS = {"node", "nodejs", "npm", "npx", "corepack"}
CLONE_TIME = 480.0  # seconds until a new clone has all that it needs
PATIENCE = 280.0  # seconds for pip


class Environment(NamedTuple):
    """A virtual environment with nothing but pip."""

    folder: Path

    @property
    def variables(self) -> Mapping[str, str]:
        """PATH has this environment only, so neither node nor npm."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONTHEDOT", "PYTHON"))}
        assert not [name for name in ("node", "npm") if shutil.which(name, path=str(self.folder / "bin"))]
        return {**kept, "PATH": str(self.folder / "bin"), "npm_config_registry": UNREACHABLE}

    def pip(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / "bin" / "python"), "-m", "pip", *arguments],
            env={**self.variables, **variables}, capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip

    @contextmanager
    def page(self, folder: Path) -> Iterator[str]:
        """``onthedot dev`` of a program with one line. Yields the address."""
        folder.joinpath("app.py").write_text('import onthedot\napp = onthedot.App("shop", store="sqlite:///shop.db")\n')
        port = free_port()
        log = folder / "log"
        with log.open("w") as output:
            process = start_guarded(
                [str(self.folder / "bin" / "onthedot"), "dev", "app.py", "--port", str(port)],
                cwd=folder, env={**self.variables, "ONTHEDOT_WEB_TOKEN": TOKEN}, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            wait_until(lambda: "worker ready" in log.read_text() or process.poll() is not None)
            assert "worker ready" in log.read_text(), log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(SOON)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    found = Environment(tmp_path / "environment")
    python = sys._base_executable  # type: ignore[attr-defined] # of a .venv: the interpreter that it was made with
    made = subprocess.run([python, "-m", "venv", str(found.folder)], capture_output=True, text=True, check=False)
    if made.returncode:
        give_up(f"no virtual environment with pip: {made.stdout.strip()}")
    downloaded = found.pip("download", "--no-deps", "--dest", str(tmp_path / "downloads"), "hatchling>=1.27")
    if downloaded.returncode:
        give_up(f"no package index: {downloaded.stderr.strip()}")
    return found


def answer(address: str) -> tuple[int, str]:
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(request, timeout=SOON) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_installed_sdist_serves_the_page(environment: Environment, tmp_path: Path) -> None:
    sdist = built_sdist(tmp_path)
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert [name for name in names if name.endswith("/static/LICENSES.txt")] != []
    assert [name for name in names if name.endswith(".map") or "/node_modules/" in name] == []
    installed = environment.pip("install", f"{sdist}[web]", ONTHEDOT_BUILD_PAGE="require")
    assert installed.returncode == 0, installed.stderr
    with environment.page(tmp_path) as address:
        status, page = answer(f"{address}/")
        assert status == 200
        (script,) = re.findall(r'src="([^"]+\.js)"', page)
        (style,) = re.findall(r'href="([^"]+\.css)"', page)
        for name in (script, style):
            status, text = answer(f"{address}{name}")
            assert (status, len(text) > 10_000) == (200, True)


def built_sdist(folder: Path) -> Path:
    """Of this checkout; its page is built already."""
    code = "import sys; from hatchling import build; print(build.build_sdist(sys.argv[1]))"
    environment = {**os.environ, "ONTHEDOT_BUILD_PAGE": "require"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.mark.timed
def test_checkout_is_installed_at_once_without_npm_and_the_page_names_the_command(
    environment: Environment, tmp_path: Path
) -> None:
    checkout = Checkout(tmp_path / "checkout", node_modules=False)
    ignored = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(ROOT / "src", checkout.folder / "src", ignore=ignored, dirs_exist_ok=True)
    cache = str(tmp_path / "npm")
    times: list[float] = []
    for _ in range(2):  # the first one may download
        began = time.monotonic()
        installed = environment.pip("install", "--force-reinstall", f"{checkout.folder}[web]", npm_config_cache=cache)
        times.append(time.monotonic() - began)
        assert installed.returncode == 0, installed.stderr
    with environment.page(tmp_path) as address:
        status, text = answer(f"{address}/")
        assert status == 503
        assert "./dev page" in text
        assert answer(f"{address}/api/v1/status")[0] == 200
    required = environment.pip(
        "install", "--force-reinstall", "--no-deps", str(checkout.folder),
        npm_config_cache=cache, ONTHEDOT_BUILD_PAGE="require",
    )  # fmt: skip
    assert required.returncode != 0
    assert "PageNotBuilt: npm ci failed" in required.stderr + required.stdout
    print(f"installed in {times[0]:.1f} and {times[1]:.1f} s, npm refused")
    assert min(times) <= INSTALL_TIME


@pytest.mark.long
@pytest.mark.skipif(not LONG, reason="downloads all that a clone needs: ONTHEDOT_FAULTS=long")
def test_demo_of_a_new_clone_needs_python_only(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    monkeypatch.setenv("PATH", path_without_node(tmp_path / "programs"))
    began = time.monotonic()
    with terminal(clone, "demo", "--speed", "10", program=["./dev"]) as demo:
        demo.until("page http", timeout=CLONE_TIME)
        address = "http" + demo.until("\n").split("\x1b")[0].strip()
        print(f"page after {time.monotonic() - began:.0f} s")
        tab = chromium.new_page()
        tab.goto(address)
        tab.wait_for_selector(".connection.live:has-text('live')", timeout=SOON * 1000)
        tab.click("nav a:has-text('Tasks')")
        tab.wait_for_selector("table.tasks .state-succeeded", timeout=SOON * 1000)
        tab.close()
        demo.until("Ctrl+C ends it.", timeout=120)
        demo.process.send_signal(signal.SIGINT)
        assert demo.ended() == 0


def path_without_node(folder: Path) -> str:
    """All programs of this machine but node and what comes with it."""
    folder.mkdir()
    for place in filter(Path.is_dir, map(Path, os.get_exec_path())):
        for program in place.iterdir():
            link = folder / program.name
            if program.name not in NODE_PROGRAMS and not link.is_symlink():
                link.symlink_to(program)
    assert shutil.which("node", path=str(folder)) is None
    return str(folder)
