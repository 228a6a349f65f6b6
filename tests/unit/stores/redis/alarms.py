"""Reads the alarms of a server and checks their invariants."""

from __future__ import annotations

import redis

WIDTH = 131_072  # ms of a bucket


def alarms_of(client: redis.Redis, prefix: str) -> dict[int, int]:
    """seq → time of each alarm. Each is once in its bucket, and no bucket is empty."""
    found: dict[int, int] = {}
    names = {name.decode(): start for name, start in client.zrange(f"{prefix}alarms", 0, -1, withscores=True)}
    keys = {key.decode() for key in client.scan_iter(f"{prefix}alarms:*")}
    assert keys == {f"{prefix}alarms:{name}" for name in names}, "buckets that are not in the order, or are no more"
    for name, place in names.items():
        assert place == int(name)
        for seq, moment in client.zrange(f"{prefix}alarms:{name}", 0, -1, withscores=True):
            number = int.from_bytes(seq)
            assert moment // WIDTH == int(name), "in another's bucket"
            assert len(seq) == 6, "no number of a task"
            assert number not in found, "set twice"
            found[number] = int(moment)
    return found
