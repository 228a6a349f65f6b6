"""The package of an earlier revision, beside this tree: two versions on one store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from tests.support.services.programs import Missing

ROOT = Path(__file__).parents[2]
_STORED_FORM = ("*schema.sql", "functions/*.sql")


def previous_tree(folder: Path, revision: str) -> Path:
    """Unpacks `src` of the revision into the folder; for PYTHONPATH. The package is pure Python, as its wheel is."""
    command = ["git", "-C", str(ROOT), "archive", revision, "src"]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        raise Missing(f"no revision {revision} of this tree: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def previous_revision(folder: Path, store: str) -> str:
    """The revision since which the stored form has not changed, but most other code has; $ONTHEDOT_PREVIOUS: another.

    Redis has none, records and scripts come from the client: that of Postgres. A revision that cannot be imported,
    because it is a part of a change, is passed over. folder: to look at them.
    """
    if given := os.environ.get("ONTHEDOT_PREVIOUS"):
        return given
    stored = f"src/onthedot/stores/{'postgres' if store == 'redis' else store}"
    changed = _git("log", "-1", "--format=%H", "--", *(f":(glob){stored}/{files}" for files in _STORED_FORM))
    if not changed:
        raise Missing(f"the history of this tree does not have the last change of {stored}")
    later = _git("rev-list", "--reverse", f"{changed}..HEAD", "--", "src").split()
    for revision in [changed, *later]:
        if _can_be_imported(previous_tree(folder / revision, revision)):
            return revision
    raise Missing(f"no revision since {changed} can be imported")


def _can_be_imported(source: Path) -> bool:
    command = [sys.executable, "-c", "from onthedot import App"]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False).returncode == 0


def revision_before_the_schema(store: str) -> str:
    """The last revision whose schema has another version than this tree's."""
    file = f"src/onthedot/stores/{store}/schema.py"
    found = _git("log", "-1", "-G^VERSION = ", "--format=%H~1", "--", file)
    if not found:
        raise Missing(f"no earlier schema of {store} in the history of this tree")
    return found


def revision_before_flows() -> str:
    """The last revision whose workers do not increment the counters of flows."""
    file = "src/onthedot/stores/contract/sessions.py"
    found = _git("log", "-1", "-G^SESSION_FORMAT = ", "--format=%H~1", "--", file)
    if not found:
        raise Missing("no revision without flows in the history of this tree")
    return found


def _git(*arguments: str) -> str:
    """Without a repository: empty."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def layout(source: Path, store: str) -> tuple[str, str]:
    """The version of the stored form in this package, and a digest of it: tables, and functions in the database."""
    folder = source / "onthedot" / "stores" / store
    if not (folder / "schema.py").exists():
        return "", ""  # Redis: records and scripts come from the client
    version = re.search(r"^VERSION = (\d+)", (folder / "schema.py").read_text("utf-8"), re.MULTILINE)
    files = [*sorted(folder.glob("*schema.sql")), *sorted(folder.glob("functions/*.sql"))]
    text = "".join(file.read_text("utf-8") for file in files)
    return version[1] if version else "", sha256(text.encode()).hexdigest()[:12]
