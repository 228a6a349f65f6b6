"""The rights of a user that may work with the tasks of an app, and do nothing else."""

from __future__ import annotations

import re

from onthedot.stores.redis.scripts import SCRIPTS
from onthedot.stores.redis.url import place_of

_IN_SCRIPT = re.compile(r"\w\('([A-Z]+)'(?:, '(NUMSUB)')?")  # of PUBSUB no more: it would tell of others' channels
_OURS = (  # by the client itself: to come in, to call a script, to look, to hear
    "auth", "client|setname", "select", "ping", "info", "time", "eval", "evalsha", "hget", "hgetall", "hkeys", "xrange",
    "subscribe",
)  # fmt: skip
_CLUSTER = ("asking", "cluster|slots", "command")


def commands(*, cluster: bool = False, wait: bool = False) -> list[str]:
    """All that is ever said to a server. Those of the scripts are read from them."""
    said = {words for script in SCRIPTS.values() for words in _IN_SCRIPT.findall(script.text)}
    found = {"|".join(filter(None, words)).lower() for words in said}
    return sorted(found.union(_OURS, _CLUSTER if cluster else (), ("wait",) if wait else ()))


def rights_text(url: str, role: str, app: str) -> str:
    """For redis-cli; app "" stands for all apps of the server."""
    keys = f"onthedot:{{{app}}}:*" if app else "onthedot:*"
    address = place_of(url)
    known = commands(cluster=address.kind == "redis+cluster", wait=address.wait > 0)
    granted = " ".join(f"+{name}" for name in known)
    return f"ACL SETUSER {role} reset on >PASSWORD resetchannels ~{keys} &{keys} -@all {granted}\n"
