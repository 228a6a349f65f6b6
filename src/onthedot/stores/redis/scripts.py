"""The Lua scripts: one file per verb. A script is the verb behind the parts that it uses."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "lua"
_USES = "-- uses:"  # parts that come before this one, each once
_HERE = "-- here:"  # a part that is defined only where a branch needs it
_BASE = "write_buffer"


class Script(NamedTuple):
    text: str
    sha: str


def _read(verb: str) -> Script:
    parts: dict[str, str] = {}
    body = _expand(f"verbs/{verb}", parts)
    names = list(parts)
    texts = list(parts.values())
    if f"lib/{_BASE}" in parts:
        texts = _nest(texts, names.index(f"lib/{_BASE}") + 1)
        body += "\nend)()"
    text = "\n".join([*texts, body])
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _nest(texts: list[str], base: int) -> list[str]:
    """Put all parts behind the base into a function, where the base's variables are upvalues.

    For a closure over a local variable of the same function, Lua searches the list of open upvalues, for every closure
    of every call. That was half of their cost.
    """
    return [*texts[:base], "return (function()", *texts[base:]]


def _expand(name: str, parts: dict[str, str]) -> str:
    """The text of a file without comment lines, which every server would store; the parts it uses go into `parts`."""
    plain: list[str] = []
    for line in (_FOLDER / f"{name}.lua").read_text("utf-8").splitlines():
        text = line.lstrip()
        if text.startswith(_USES):
            for used in text.removeprefix(_USES).split():
                _include(f"lib/{used}", parts)
        elif text.startswith(_HERE):
            inner = dict(parts)
            _include("lib/" + text.removeprefix(_HERE).strip(), inner)
            plain += list(inner.values())[len(parts) :]
        elif not text.startswith("--"):
            plain.append(line)
    return "\n".join(plain)


def _include(name: str, parts: dict[str, str]) -> None:
    if name not in parts:
        text = _expand(name, parts)
        parts[name] = text


VERBS = (
    "add", "turn", "set_aside", "note", "cancel", "lift", "adopt", "revive", "heartbeat", "close_session",
    "put_schedules", "put_limits", "fire", "delete_schedules", "purge", "get", "results", "resolve_ids", "position",
    "schedules", "sessions", "server_info", "repair", "signal", "signals", "signal_names", "counters", "subscribe",
    "notes", "write_series", "read_series", "list", "find_named",
)  # fmt: skip
SCRIPTS: dict[str, Script] = {verb: _read(verb) for verb in VERBS}
TEXTS: dict[str, str] = {script.sha: script.text for script in SCRIPTS.values()}
