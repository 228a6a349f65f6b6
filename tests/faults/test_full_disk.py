"""A full disk and files without write permission. The tests need root to mount a disk and to change the user."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from onthedot import App, StoreError, StoreFull

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount and change users"),
]
NOBODY = 65534


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode()}")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_full_disk_raises_store_full_and_loses_nothing(small_disk: Path) -> None:
    app: App[None] = App("shop", store=f"sqlite:///{small_disk}/t.db")
    work = app.named("work")
    acknowledged = list[str]()
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_500_000)

    def fill() -> None:
        for _ in range(1000):
            acknowledged.append(work.delay(text="x" * 10_000).uuid)

    with pytest.raises(StoreFull, match=r"t\.db.*space"):
        fill()
    assert acknowledged
    ballast.unlink()
    acknowledged.append(work.delay(text="there is space again").uuid)
    assert app.sync.get(acknowledged[-1]).state == "ready"
    app.shutdown()
    with closing(sqlite3.connect(small_disk / "t.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert {uuid for (uuid,) in db.execute("SELECT uuid FROM onthedot_task")} >= set(acknowledged)


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("exists", [True, False])
def test_missing_write_permission_is_an_error_with_the_file_name(exists: bool) -> None:
    """A read-only file, or a folder in which no file can be created."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        if exists:
            app: App[None] = App("shop", store=f"sqlite:///{folder}/t.db")
            app.named("work").delay()
            app.shutdown()
        before = sorted(path.name for path in folder.iterdir())
        with as_nobody():
            app = App("shop", store=f"sqlite:///{folder}/t.db")
            with pytest.raises(StoreError, match=r"t\.db.*(may this user write|write)"):
                app.named("work").delay()
            app.shutdown()
        assert sorted(path.name for path in folder.iterdir()) == before
        if exists:
            with closing(sqlite3.connect(folder / "t.db")) as db:
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
