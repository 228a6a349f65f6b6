"""The Lua scripts: a file a verb. What a verb uses stands before it, in the order it names."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "lua"
_USES = "-- uses:"
_HERE = "-- here:"
_GROUND = "write_buffer"  # what is used by most ends with it


class Script(NamedTuple):
    text: str
    sha: str


def _read(verb: str) -> Script:
    used = [
        name for line in _lines(f"verbs/{verb}") if line.startswith(_USES) for name in line.removeprefix(_USES).split()
    ]
    parts = [_plain(f"lib/{name}") for name in used]
    if _GROUND in used:
        parts = _nested(parts, used.index(_GROUND) + 1)
    text = "\n".join([*parts, _plain(f"verbs/{verb}"), *(["end)()"] if _GROUND in used else [])])
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _nested(parts: list[str], ground: int) -> list[str]:
    """What follows is inside a function: there Lua finds what a closure needs of the ground at once.

    In one body it would search its whole stack for each, for every closure of every call: half of what they cost.
    """
    return [*parts[:ground], "return (function()", *parts[ground:]]


def _lines(name: str) -> list[str]:
    return (_FOLDER / f"{name}.lua").read_text("utf-8").splitlines()


def _plain(name: str) -> str:
    """Without whole-line comments: they would be sent and kept by every server.

    A part that few calls come to takes in what it needs where it stands: others need not even define that.
    """
    plain: list[str] = []
    for line in _lines(name):
        text = line.lstrip()
        if text.startswith(_HERE):
            plain.append(_plain("lib/" + text.removeprefix(_HERE).strip()))
        elif not text.startswith("--"):
            plain.append(line)
    return "\n".join(plain)


VERBS = (
    "add", "add_uniform", "turn", "note", "cancel", "lift", "adopt", "revive", "heartbeat", "close_session",
    "put_schedules", "put_limits", "fire", "delete_schedules", "purge", "get", "resolve_ids", "position", "schedules",
    "sessions", "server_info",
)  # fmt: skip
SCRIPTS: dict[str, Script] = {verb: _read(verb) for verb in VERBS}
TEXTS: dict[str, str] = {script.sha: script.text for script in SCRIPTS.values()}
