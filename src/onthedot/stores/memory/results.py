"""Results that are to go before their records."""

from __future__ import annotations

from collections import deque


class Results:
    """By uuid, each until its moment."""

    def __init__(self) -> None:
        self._by_uuid: dict[str, tuple[bytes, int]] = {}
        self._queues: dict[int, deque[str]] = {}  # by how long they are kept: each a queue in time

    def put(self, uuid: str, result: bytes, keep: int, now: float) -> None:
        self._by_uuid[uuid] = (result, int(now) + keep)
        self._queues.setdefault(keep, deque()).append(uuid)

    def get(self, uuid: str, now: float) -> bytes | None:
        held = self._by_uuid.get(uuid)
        return None if held is None or held[1] <= now else held[0]

    def drop(self, uuid: str) -> None:
        self._by_uuid.pop(uuid, None)

    def purge(self, limit: int, now: float) -> None:
        for queue in self._queues.values():
            for _ in range(min(limit, len(queue))):
                held = self._by_uuid.get(queue[0])
                if held is not None and held[1] > now:
                    break
                self.drop(queue.popleft())
