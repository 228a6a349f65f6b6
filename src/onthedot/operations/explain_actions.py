"""The request by which an operator ends a reason why a task is not running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote

from onthedot.stores.contract import Limit

_HASHED = "%~"  # in the name of a lane whose key is too long: the key is not known


@dataclass(frozen=True, slots=True)
class ReasonAction:
    """A request to the HTTP API. label: resume ends a pause; limit and signal need a value from the operator.

    path: below /api/v1; body: its known fields
    """

    label: Literal["resume", "limit", "signal"]
    method: Literal["POST", "PUT"]
    path: str
    body: Mapping[str, object] = field(default_factory=dict[str, object])


def resume_action(name: str, limits: Sequence[Limit]) -> ReasonAction | None:
    """End the pause that holds a source or lane back. name: of that; limits: all of the store.

    >>> resume_action("send/acme", [Limit("send/acme", paused=True)])
    ReasonAction(label='resume', method='POST', path='/sources/send/resume', body={'key': 'acme'})
    """
    head, slash, _ = name.partition("/")
    paused = {limit.name for limit in limits if limit.paused}
    found = next((each for each in (name, f"{head}/*") if each in paused), name)
    if _HASHED in found:
        return None
    path = f"/sources/{quote(head, safe='')}/resume"
    if not slash:
        return ReasonAction("resume", "POST", path)
    key = unquote(found.removeprefix(f"{head}/"))
    return ReasonAction("resume", "POST", path, {"key": key})


def limit_action(name: str) -> ReasonAction:
    """Change the limit of a source or lane.

    >>> limit_action("@openai/acme").path
    '/limits/%40openai/acme'
    """
    return ReasonAction("limit", "PUT", f"/limits/{quote(name)}")


def signal_action(name: str, uuid: str) -> ReasonAction:
    """Send the signal that a task waits for to it alone.

    >>> signal_action("approved", "u1")
    ReasonAction(label='signal', method='POST', path='/signals/approved', body={'to': 'u1'})
    """
    return ReasonAction("signal", "POST", f"/signals/{quote(name, safe='')}", {"to": uuid})
