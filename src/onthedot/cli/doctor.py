"""``onthedot doctor``: is everything as it should be?"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from onthedot.cli.options import Mistake, Said, shared
from onthedot.cli.screen import ago, clean, screen, write_json
from onthedot.cli.store import ask, shown, target
from onthedot.errors import OnTheDotError
from onthedot.operations import Operations
from onthedot.settings import version
from onthedot.stores.about import check_schema, file_of

_LITTLE = 100 * 2**20  # bytes left on a disk
_LATE = 60.0  # seconds that a due task may wait before somebody should look
_MENDED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))  # SQLite releases without the WAL-reset bug
_REMOTE = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs", "ceph", "glusterfs")


class Finding(msgspec.Struct):
    ok: bool
    what: str
    text: str


@click.command()
@shared("store", "name", "app", "json")
@click.pass_obj
def doctor(said: Said) -> None:
    """Is everything as it should be? Exit code 1 if not, 3 if the store cannot be reached."""
    code, findings = 0, list(_here())
    try:
        url, name = target(said)
        findings.append(Finding(True, "store", f"{shown(url)}, app {name}"))
        if (path := file_of(url)) is not None:
            for finding in _file(path):
                findings.append(finding)  # noqa: PERF402 - what was found before one fails is told, too
        findings += ask(said, _inside)
    except (OnTheDotError, Mistake) as error:
        findings.append(Finding(False, "store", error.message if isinstance(error, Mistake) else str(error)))
        code = 3
    code = code or int(not all(finding.ok for finding in findings))
    if said.json:
        write_json({"ok": code == 0, "findings": findings})
    else:
        screen().table(("", "", ""), [["✓" if each.ok else "✗", each.what, each.text] for each in findings])
    raise SystemExit(code)


def _here() -> Iterator[Finding]:
    yield Finding(True, "onthedot", f"{version()} in {Path(__file__).parents[1]}")
    yield Finding(sys.version_info >= (3, 11), "Python", f"{platform.python_version()} on {platform.platform()}")
    year = time.gmtime().tm_year
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    yield Finding(2024 <= year < 2100, "clock", now)


def _file(path: Path) -> Iterator[Finding]:
    at = sqlite3.sqlite_version_info
    mended = at >= _MENDED[0] or any(fix <= at < (*fix[:2], 99) for fix in _MENDED[1:])
    bug = "" if mended else ", has the WAL-reset bug; onthedot checkpoints under a lock, so it does not occur"
    yield Finding(at >= (3, 35), "SQLite", f"{sqlite3.sqlite_version}{bug}")
    folder = path.absolute().parent
    if not folder.is_dir():
        yield Finding(False, "folder", f"there is no folder {folder}")
        return
    kind = _file_system(folder)
    remote = kind.startswith(_REMOTE)
    yield Finding(
        not remote, "file system", kind + (": locks are not reliable there; use a local disk" if remote else "")
    )
    writable = os.access(folder, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    yield Finding(writable, "writable", str(path.absolute()) + ("" if writable else ": no permission to write"))
    free = shutil.disk_usage(folder).free
    yield Finding(free > _LITTLE, "disk", f"{free / 2**30:.1f} GiB free")
    if path.exists():
        fits, told = check_schema(path)
        yield Finding(fits, "schema", told)


def _file_system(folder: Path) -> str:
    """From the system's own table, by the longest mount point above the folder."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8", "replace").splitlines()]
    except OSError:
        return "unknown"
    real = f"{folder.resolve()}/"
    above = [fields for fields in mounts if real.startswith(fields[1].rstrip("/") + "/")]
    return max(above, key=lambda fields: len(fields[1]), default=["", "", "unknown"])[2]


async def _inside(operations: Operations) -> list[Finding]:
    began = time.monotonic()
    counts = await asyncio.wait_for(operations.counts(), 10)
    took = (time.monotonic() - began) * 1000
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()) if count) or "no tasks"
    findings = [Finding(True, "reachable", f"answers in {took:.1f} ms; {states}")]
    workers = await operations.workers()
    hosts = ", ".join(sorted({each.host for each in workers if each.host}))
    findings.append(Finding(True, "workers", f"{len(workers)}" + (f" on {hosts}" if hosts else "")))
    due, newest = await operations.oldest_ready(), (await operations.find(limit=1)).tasks
    if due is not None:
        waits = time.time() - due.timestamp()
        why = "" if waits < _LATE else ": is a worker running that knows it? is it paused?"
        findings.append(Finding(waits < _LATE, "oldest ready", f"due {ago(-waits)}{why}"))
    if newest and newest[0].added_at.timestamp() > time.time() + 1:
        ahead = newest[0].added_at.timestamp() - time.time()
        findings.append(Finding(False, "clock", f"the newest task was added {ahead:.0f} s in the future"))
    groups = await operations.failures()
    failed = sum(group.count for group in groups)
    most = f", most of them {clean(groups[0].type)} in {groups[0].source}; see `onthedot failed`" if groups else ""
    findings.append(Finding(True, "failed", f"{failed}{most}"))
    return findings
