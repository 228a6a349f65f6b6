"""The ACL rule of a user that may only work with the tasks of an app."""

from __future__ import annotations

import re

from onthedot.stores.redis.scripts import SCRIPTS
from onthedot.stores.redis.url import parse_url

_IN_SCRIPT = re.compile(r"\w\('([A-Z]+)'(?:, '(NUMSUB)')?")  # of PUBSUB only NUMSUB: others list channels
_CLIENT = (  # sent by the client itself, not by scripts
    "auth", "client|setname", "select", "ping", "info", "time", "eval", "evalsha", "hget", "hgetall", "hkeys",
    "smembers", "xrange", "subscribe",
)  # fmt: skip
_CLUSTER = ("cluster|slots", "command")


def commands(*, cluster: bool = False, wait: bool = False) -> list[str]:
    """All commands that are sent to a server. Those of the scripts are read from their texts."""
    found = {match for script in SCRIPTS.values() for match in _IN_SCRIPT.findall(script.text)}
    names = {"|".join(filter(None, match)).lower() for match in found}
    names.update(_CLIENT)
    if cluster:
        names.update(_CLUSTER)
    if wait:
        names.add("wait")
    return sorted(names)


def rights_text(url: str, role: str, app: str) -> str:
    """For redis-cli; app "" means all apps of the server."""
    keys = f"onthedot:{{{app}}}:*" if app else "onthedot:*"
    address = parse_url(url)
    names = commands(cluster=address.kind == "redis+cluster", wait=address.wait > 0)
    granted = " ".join(f"+{name}" for name in names)
    return f"ACL SETUSER {role} reset on >PASSWORD resetchannels ~{keys} &{keys} -@all {granted}\n"
