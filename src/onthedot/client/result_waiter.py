"""Waiting for the ends and new items of tasks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import aclosing

from onthedot.errors import StoreError, TaskNotFound
from onthedot.model.task import NAME
from onthedot.observability.events import Observer
from onthedot.stores.contract import ENDED, Hint, Record, Store

_POLL = 1.0  # seconds: a hint may be lost, and tasks of other processes send theirs to them


class ItemHints:
    """The hints about one task since its reader last looked."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.check_state: bool = True  # it may have ended
        self._event = asyncio.Event()
        self._event.set()
        self.is_set: Callable[[], bool] = self._event.is_set
        self.set: Callable[[], None] = self._event.set

    def take(self) -> bool:
        """Whether the state is to be read. From here on new hints count."""
        self._event.clear()
        check_state = self.check_state
        self.check_state = False
        return check_state

    async def wait(self, timeout: float) -> bool:
        """False: no hint came in time."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class ResultWaiter:
    """Waits on hints from the store, and reads a task again every second without one."""

    def __init__(self, store: Store, client: str, observer: Observer) -> None:
        self._store = store
        self._client = client
        self._observer = observer
        self._waiters: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self._readers: defaultdict[str, list[ItemHints]] = defaultdict(list)
        self._listener: asyncio.Task[None] | None = None

    def listen_for_items(self, uuid: str) -> ItemHints:
        """Gathers hints about new items and the end of a task, until `forget`."""
        self._listen_once()
        hints = ItemHints(uuid)
        self._readers[uuid].append(hints)
        return hints

    def forget(self, hints: ItemHints) -> None:
        """From any thread."""
        readers = self._readers.get(hints.uuid, [])
        if hints in readers:
            readers.remove(hints)
        if not readers:
            self._readers.pop(hints.uuid, None)

    @property
    def has_readers(self) -> bool:
        """Whether a stream is being read."""
        return bool(self._readers)

    async def subscribe(self, uuid: str) -> None:
        """The store notifies this client of new items and the end of a task."""
        await self._store.subscribe(self._client, (uuid,))

    def _listen_once(self) -> None:
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())

    async def wait(self, uuid: str, timeout: float | None) -> Record:
        """Returns the task when it has ended. TimeoutError: it has not; TaskNotFound: it is unknown or purged."""
        self._listen_once()
        try:
            async with asyncio.timeout(timeout):
                return await self._wait(uuid)
        except TimeoutError:
            raise TimeoutError(f"task {uuid} has not ended within {timeout:g} s") from None

    async def _wait(self, uuid: str) -> Record:
        while True:
            hinted = asyncio.get_running_loop().create_future()
            self._waiters[uuid].append(hinted)  # before the read: an end after it sends a hint
            try:
                record = None
                if NAME.fullmatch(uuid):
                    (record,) = await self._store.get((uuid,))
                if record is None:
                    raise TaskNotFound(f"no task {uuid}: never added here, or no longer kept")
                if record.state in ENDED:
                    return record
                await asyncio.wait([hinted], timeout=_POLL)
            finally:
                self._waiters[uuid].remove(hinted)
                if not self._waiters[uuid]:
                    del self._waiters[uuid]

    async def _listen(self) -> None:
        failed = False
        while True:
            try:
                async with aclosing(self._store.hints(self._client)) as hints:
                    async for hint in hints:
                        if failed and hint.resync:
                            failed = False
                            self._observer.store_recovered("listening for ends")
                        ended = set(self._waiters)
                        if not hint.resync:
                            ended &= hint.ended
                        for uuid in ended:
                            self._wake(uuid)
                        if self._readers:
                            self._notify_readers(hint)
            except StoreError as error:  # meanwhile tasks are read every second
                failed = True
                self._observer.store_failed("listening for ends", error)
                await asyncio.sleep(_POLL)

    def _wake(self, uuid: str) -> None:
        for hinted in self._waiters[uuid]:
            if not hinted.done():
                hinted.set_result(None)

    def _notify_readers(self, hint: Hint) -> None:
        for uuid in list(self._readers) if hint.resync else hint.ended | hint.new_items:
            for reader in list(self._readers.get(uuid, ())):
                reader.check_state = reader.check_state or hint.resync or uuid in hint.ended
                reader.set()

    async def drain(self, timeout: float) -> None:
        """Gives those who wait a last chance, for `timeout` seconds at most."""
        waiting = [each for waiters in self._waiters.values() for each in waiters]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout)

    async def close(self) -> None:
        listener = self._listener
        self._listener = None
        if listener is not None:
            listener.cancel()
            await asyncio.wait([listener])
