"""The package of an earlier revision, beside this tree: two versions on one store."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from tests.support.services.programs import Missing

ROOT = Path(__file__).parents[2]
REVISION = os.environ.get("ONTHEDOT_PREVIOUS", "HEAD~1")


def previous_tree(folder: Path, revision: str = REVISION) -> Path:
    """Unpacks `src` of the revision into the folder; for PYTHONPATH. The package is pure Python, as its wheel is."""
    command = ["git", "-C", str(ROOT), "archive", revision, "src"]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        raise Missing(f"no revision {revision} of this tree: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def revision_before_the_schema(store: str) -> str:
    """The last revision whose schema has another version than this tree's."""
    file = f"src/onthedot/stores/{store}/schema.py"
    command = ["git", "-C", str(ROOT), "log", "-1", "-G^VERSION = ", "--format=%H~1", "--", file]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode or not found.stdout:
        raise Missing(f"no earlier schema of {store} in the history of this tree: {found.stderr.strip()}")
    return found.stdout.strip()


def layout(source: Path, store: str) -> tuple[str, str]:
    """The version of the stored form in this package, and a digest of it: tables, and functions in the database."""
    folder = source / "onthedot" / "stores" / store
    if not (folder / "schema.py").exists():
        return "", ""  # Redis: records and scripts come from the client
    version = re.search(r"^VERSION = (\d+)", (folder / "schema.py").read_text("utf-8"), re.MULTILINE)
    files = [*sorted(folder.glob("*schema.sql")), *sorted(folder.glob("functions/*.sql"))]
    text = "".join(file.read_text("utf-8") for file in files)
    return version[1] if version else "", sha256(text.encode()).hexdigest()[:12]
