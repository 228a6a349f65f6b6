"""``onthedot doctor``: check this machine, the store and the workers; each problem with a remedy."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from onthedot.cli.bus_check import check_bus
from onthedot.cli.options import GlobalOptions, store_command
from onthedot.cli.output import screen, write_json
from onthedot.cli.table import Column
from onthedot.cli.target import target, with_operations
from onthedot.errors import OnTheDotError, StoreError, StoreUnavailable
from onthedot.operations import Operations
from onthedot.operations.doctor import diagnose
from onthedot.operations.health import Check
from onthedot.operations.humanize import plural
from onthedot.runtime.settings import store_url, version
from onthedot.stores.masked_url import masked
from onthedot.stores.schemes import check_schema, driver_of, file_of, file_url
from onthedot.supervisor.exit_codes import STORE, CommandError

_MIN_FREE = 100 * 2**20  # bytes on the disk
_MAX_WAL = 32 * 2**20  # bytes; checkpoints start at 4 MiB
_TIMEOUT = 30.0  # seconds for reading the store
_FIXED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))  # SQLite releases without the WAL-reset bug
_NETWORK = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs", "ceph", "glusterfs")


@store_command()
@click.option("--repair", is_flag=True, help="Requeue tasks that an aborted script has left in no place (Redis).")
@click.option(
    "--bus",
    metavar="URL",
    envvar="ONTHEDOT_BUS",
    help="Also check this bus, its topics, groups and dead letters: kafka://…, or store. [ONTHEDOT_BUS]",
)
def doctor(options: GlobalOptions, repair: bool, bus: str | None) -> None:  # fmt: skip
    """Check this machine, the store, the workers and the outbox. Exit code 1: something is wrong; 3: no store."""
    findings = list(_machine())
    code = 0
    if options.module is not None:
        findings.append(_app(options, options.module))
    try:
        for finding in _store(options, repair=repair):
            findings.append(finding)  # noqa: PERF402 - findings before an error are shown, too
    except OnTheDotError as error:
        findings.append(Check(False, "store", str(error), "name the right one by --store or ONTHEDOT_STORE"))
        code = STORE
    if bus is not None and not code:
        findings += check_bus(options, bus)
    code = code or int(not all(finding.ok for finding in findings))
    if options.json:
        write_json({"ok": code == 0, "findings": findings})
    else:
        rows = [["✓" if each.ok else "✗", each.what, each.text] for each in findings]
        for place, each in reversed(list(enumerate(findings, 1))):
            if not each.ok and each.remedy:
                rows.insert(place, ["", "", f"→ {each.remedy}"])
        screen().table(("", "", Column("", wrap=True)), rows)
    raise SystemExit(code)


def _machine() -> Iterator[Check]:
    yield Check(True, "onthedot", f"{version()} in {Path(__file__).parents[1]}")
    python = f"{platform.python_version()} on {platform.platform()}"
    yield Check(sys.version_info >= (3, 11), "Python", python, "onthedot needs Python 3.11 or newer")
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    yield Check(2024 <= time.gmtime().tm_year < 2100, "clock", now, "set this machine's clock")


def _app(options: GlobalOptions, module: str) -> Check:
    """If it cannot be imported, the store of the other options is checked nevertheless."""
    from onthedot.supervisor.app_loader import load_app_and_included

    try:
        app = load_app_and_included(module)
    except CommandError as error:
        options.module = None
        return Check(False, "app", str(error), "fix it, or name the right one by -A")
    return Check(True, "app", f"{app.name} in {module}, {plural(len(app.runtime.sources.known), 'source')}")


def _store(options: GlobalOptions, *, repair: bool) -> Iterator[Check]:
    if options.module is None:
        url = store_url(options.store)  # the name of the app may need the driver
    else:
        url, _ = target(options)
    yield from _driver(url)
    path = file_of(url)
    if path is not None:
        yield from _file(path)
    url, name = target(options)
    if not name and path is None:  # it has no app yet, but the server can be checked
        options.app_name = "onthedot"
    inside = with_operations(options, lambda operations: _inside(operations, repair=repair))
    content = f"app {name}" if name else "in which nobody has tasks yet"
    yield Check(True, "store", f"{masked(url)}, {content}")
    yield from inside


def _driver(url: str) -> Iterator[Check]:
    driver = driver_of(url)
    if driver is not None and importlib.util.find_spec(driver.module) is None:
        yield Check(False, "driver", f"{driver.module} is not installed", f"pip install 'onthedot[{driver.extra}]'")


def _file(path: Path) -> Iterator[Check]:
    at = sqlite3.sqlite_version_info
    text = sqlite3.sqlite_version
    if at < _FIXED[0] and not any(fix <= at < (*fix[:2], 99) for fix in _FIXED[1:]):
        text += ", has the WAL-reset bug; onthedot checkpoints under a lock, so it does not occur"
    yield Check(at >= (3, 35), "SQLite", text, "onthedot needs SQLite 3.35 or newer")
    folder = path.absolute().parent
    if not folder.is_dir():
        yield Check(False, "folder", f"there is no folder {folder}", f"mkdir -p {folder}, or name another --store")
        return
    kind = _file_system(folder)
    network = kind.startswith(_NETWORK)
    text = f"{kind}: locks are not reliable there" if network else kind
    yield Check(not network, "file system", text, "use a local disk")
    refused = next((each for each in (path, folder) if each.exists() and not _may_write(each)), None)
    text = str(path.absolute()) if refused is None else f"{refused.absolute()}: no permission to write"
    yield Check(refused is None, "writable", text, "SQLite writes to the file and beside it: chown or chmod both")
    free = shutil.disk_usage(folder).free
    yield Check(free > _MIN_FREE, "disk", f"{free / 2**30:.1f} GiB free", f"free space where {folder} is")
    if path.exists():
        yield _schema(path)
        yield from _wal(Path(f"{path}-wal"))


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _schema(path: Path) -> Check:
    try:
        fits, text = check_schema(file_url(path))
    except StoreError as error:
        return Check(False, "schema", str(error), "is it the right file, and this the right version of onthedot?")
    return Check(fits, "schema", text, "onthedot schema install")


def _wal(path: Path) -> Iterator[Check]:
    if path.exists() and (size := path.stat().st_size) > _MAX_WAL:
        remedy = f"a long read keeps it from being written back: find the process with `lsof {path}`"
        yield Check(False, "WAL", f"{path} has {size / 2**20:.0f} MiB", remedy)


def _file_system(folder: Path) -> str:
    """Look up the longest mount point above the folder."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8", "replace").splitlines()]
    except OSError:
        return "unknown"
    real = f"{folder.resolve()}/"
    above = [fields for fields in mounts if real.startswith(fields[1].rstrip("/") + "/")]
    return max(above, key=lambda fields: len(fields[1]), default=["", "", "unknown"])[2]


async def _inside(operations: Operations, *, repair: bool) -> list[Check]:
    began = time.monotonic()
    try:
        async with asyncio.timeout(_TIMEOUT):
            counts = await operations.counts()
            took = (time.monotonic() - began) * 1000
            states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()) if count) or "no tasks"
            reachable = Check(True, "reachable", f"answers in {took:.1f} ms; {states}")
            return [reachable, *await diagnose(operations, repair=repair)]
    except TimeoutError:
        raise StoreUnavailable(f"it did not answer everything within {_TIMEOUT:.0f} s: somebody blocks it") from None
