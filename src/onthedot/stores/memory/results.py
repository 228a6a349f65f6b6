"""Results that are to go before their records."""

from __future__ import annotations

from collections import deque


class ResultTable:
    """By uuid, each until its moment."""

    def __init__(self) -> None:
        self._by_uuid: dict[str, tuple[bytes, int]] = {}
        self._queues: dict[int, deque[str]] = {}  # by how long they are kept: each a queue in time

    def put(self, uuid: str, result: bytes, keep: int, now: float) -> None:
        self._by_uuid[uuid] = (result, int(now) + keep)
        self._queues.setdefault(keep, deque()).append(uuid)

    def get(self, uuid: str, now: float) -> bytes | None:
        leased = self._by_uuid.get(uuid)
        return None if leased is None or leased[1] <= now else leased[0]

    def drop(self, uuid: str) -> None:
        self._by_uuid.pop(uuid, None)

    def purge(self, limit: int, now: float) -> None:
        for queue in self._queues.values():
            for _ in range(min(limit, len(queue))):
                leased = self._by_uuid.get(queue[0])
                if leased is not None and leased[1] > now:
                    break
                self.drop(queue.popleft())
