"""The repository contains no paths and no package index of the machine on which it was written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:work|root|home/\w+|Users/\w+)\b")
INDEX_HOST = re.compile(r"\b(?:pypi|pythonhosted|npmjs|repo1?[.]maven(?:[.]apache)?)[.](?:org|com)\b")
INDEX_SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "NPM_CONFIG_REGISTRY")


def files() -> Iterator[tuple[str, str]]:
    """Path and text of all files of the repository, also of new ones."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (raw := path.read_bytes()):
            yield name, raw.decode("utf-8")


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number} {line.strip()}"
        for name, text in files()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_a_machine() -> None:
    assert lines_with(MACHINE_PATH) == []


def test_no_file_names_a_package_index() -> None:
    assert lines_with(INDEX_HOST) == []


def test_no_file_names_the_package_index_of_this_machine() -> None:
    urls = " ".join(os.environ.get(setting, "") for setting in INDEX_SETTINGS).split()
    hosts = [re.escape(host) for host in (urlsplit(url).hostname for url in urls) if host]
    assert not hosts or lines_with(re.compile("|".join(hosts))) == []
