"""``pip install`` of a checkout or an archive: the wheel that it builds has all that a user needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path

import pytest

from tests.support.source_files import ROOT, SOURCE

pytestmark = pytest.mark.once

EXTRAS = re.compile(r"^(?:Extras: |可选依赖：)(.*?)\n\n", re.MULTILINE | re.DOTALL)
REMARK = re.compile(r"\(.*?\)|（.*?）")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Built as pip does it: in the root of an unpacked archive."""
    folder = tmp_path_factory.mktemp("install")
    archive = build("sdist", ROOT, folder)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    with zipfile.ZipFile(build("wheel", folder / archive.name.removesuffix(".tar.gz"), folder)) as wheel:
        yield wheel


def build(kind: str, source: Path, folder: Path) -> Path:
    code = f"import sys; from hatchling import build; print(build.build_{kind}(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(folder)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    return folder / built.stdout.split()[-1]


def test_wheel_has_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    files = {path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    names = {path.relative_to(SOURCE.parent).as_posix() for path in files}
    assert names - set(wheel.namelist()) == set()


def test_installed_package_runs_a_task(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    (tmp_path / "app.py").write_text(
        "import onthedot\n"
        'app = onthedot.App("shop", store="memory://")\n'
        "@app.task\n"
        "def where() -> str:\n"
        "    return onthedot.__file__\n"
        "with app.background():\n"
        "    print(where.delay().result(timeout=20))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    ran = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == str(tmp_path / "site" / "onthedot" / "__init__.py")


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_readme_names_every_extra(wheel: zipfile.ZipFile, page: str) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    extras = message_from_string(wheel.read(name).decode()).get_all("Provides-Extra") or []
    text = (ROOT / page).read_text("utf-8")
    (listed,) = EXTRAS.findall(text)
    assert sorted(re.findall(r"`(\w+)`", REMARK.sub("", listed))) == sorted(extras)
