"""The only place where sync code meets an event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeAlias, TypeVar

from onthedot.client.add_batcher import for_add
from onthedot.client.client import StoreClient
from onthedot.client.lane_router import route_by
from onthedot.errors import ArgumentError, StoreError
from onthedot.model.traces import TaskTracer, with_trace
from onthedot.operations.modes import check_accepted, frozen_sources
from onthedot.stores.capabilities import (
    AsyncTransactions,
    FileTransactions,
    SyncTransactions,
    capability,
    find_capability,
)
from onthedot.stores.contract import NewTask, Store

T = TypeVar("T")
Work = Callable[[StoreClient], Coroutine[Any, Any, T]]
Adds: TypeAlias = NewTask | Sequence[NewTask]

_PATIENCE = 1.0  # seconds that pending calls have to end


class LoopThread:
    """A daemon thread that runs an event loop."""

    def __init__(self, name: str) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._pending: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self.loop.close()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def close(self, patience: float = _PATIENCE) -> None:
        """Gives pending calls `patience` seconds to end, then cancels them and ends the thread."""
        wait(list(self._pending), timeout=patience)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


class Portal:
    """Clients by event loop: one per loop that the user has connected, else one on a thread that starts when needed."""

    def __init__(
        self, client: Callable[[], StoreClient], store: Callable[[], Store], tracer: Callable[[], TaskTracer | None]
    ) -> None:
        self._new_client = client
        self._store = store
        self._tracer = tracer
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[StoreClient, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()
        self._is_synchronous: bool | None = None  # a trait of the store; None: not read yet
        self._inline: StoreClient | None = None
        self._thread: LoopThread | None = None
        self._clients: weakref.WeakKeyDictionary[LoopThread, StoreClient] = weakref.WeakKeyDictionary()
        self._opening: Future[None] | None = None
        self.worker_loop: asyncio.AbstractEventLoop | None = None

    def on_worker_loop(self) -> bool:
        """Whether the worker runs on the event loop of the current thread."""
        return self.worker_loop is not None and asyncio._get_running_loop() is self.worker_loop

    def on_event_loop(self) -> bool:
        """Whether an event loop runs in the current thread."""
        return asyncio._get_running_loop() is not None

    # -- on the user's own loop

    async def connect(self) -> StoreClient:
        """Opens a client on this loop. Calls are counted: the last `disconnect` closes it."""
        loop = asyncio.get_running_loop()
        client, times = self._by_loop.get(loop, (None, 0))
        if client is None:
            client = self._new_client()
            await client.open()
        self._by_loop[loop] = (client, times + 1)
        return client

    def connected(self) -> StoreClient | None:
        """The client of this loop; None: the app is not connected on it."""
        return self._by_loop.get(asyncio.get_running_loop(), (None, 0))[0]

    async def disconnect(self) -> None:
        loop = asyncio.get_running_loop()
        client, times = self._by_loop.pop(loop)
        if times > 1:
            self._by_loop[loop] = (client, times - 1)
        else:
            await client.close()

    async def run(self, work: Work[T], *, waits: bool = False, adds: Adds = ()) -> T:
        """Runs work from a coroutine, on any loop.

        waits: it may suspend, even with a synchronous store
        adds: the tasks that it adds; an error before they are sent to the store names them, too
        """
        try:
            connected = self._by_loop.get(asyncio.get_running_loop())
            if connected is not None:
                return await work(connected[0])
            if not waits and self._answers_at_once():
                return await work(self._inline_client())
            return await asyncio.wrap_future(self._submit(work))
        except StoreError as error:
            raise _named(error, adds) from error.__cause__

    # -- from sync code

    def run_sync(self, work: Work[T], *, waits: bool = False, adds: Adds = ()) -> T:
        """Runs work from sync code and waits for it. waits, adds: as in `run`."""
        try:
            if not waits and self._answers_at_once():
                return run_without_loop(work(self._inline_client()))
            return _result(self._submit(work))
        except StoreError as error:
            raise _named(error, adds) from error.__cause__

    def in_transaction(self, work: Callable[[SyncTransactions], T]) -> T:
        """Runs work on the current thread, to which the caller's connection and its transaction belong."""
        store = capability(self._store(), SyncTransactions, "connection=…")
        opening = self.ensure_open()
        if opening is not None and find_capability(store, AsyncTransactions) is not None:
            opening.result()  # for other stores the opening may have to wait for this very transaction
        return work(store)

    def prepare_in_transaction(
        self, connection: object, tasks: Sequence[NewTask], *, remote: bool
    ) -> Sequence[NewTask]:
        """Refuses tasks of frozen sources, and finds lanes, for an add inside the caller's transaction.

        remote: the code of the tasks is elsewhere, so their lanes are looked up
        """
        store = find_capability(self._store(), FileTransactions)
        if store is None or self._clients:
            return self.run_sync(lambda client: client.prepare(tasks, remote=remote))
        limits = store.limits_in(connection)
        check_accepted(frozen_sources(limits), tasks)
        return with_trace(route_by(limits, tasks) if remote else tasks, self._tracer())

    async def in_transaction_awaited(
        self,
        work: Callable[[AsyncTransactions], Coroutine[Any, Any, T]],
        advice: str = "write .delay(…) instead of .enqueue(…)",
    ) -> T:
        """Runs work on the current loop, to which the caller's connection belongs. advice: for a sync connection."""
        store = find_capability(capability(self._store(), SyncTransactions, "connection=…"), AsyncTransactions)
        if store is None:
            raise ArgumentError(f"connection=…: on this store it is a sync one, of sqlite3 or SQLAlchemy, so {advice}")
        if (opening := self.ensure_open()) is not None:
            await asyncio.wrap_future(opening)
        return await work(store)

    def ensure_open(self) -> Future[None] | None:
        """Starts opening a client if there is none. Returns what to wait for, or None."""
        if self._clients or self._by_loop:
            return None
        if self._opening is None or self._opening.done():
            self._opening = self._submit(StoreClient.ready)
        return self._opening

    def _answers_at_once(self) -> bool:
        if self._is_synchronous is None:
            self._is_synchronous = self._store().traits.synchronous
        return self._is_synchronous

    def _inline_client(self) -> StoreClient:
        """The client of a synchronous store, which needs no loop and no thread."""
        if self._inline is None:
            self._inline = self._new_client()
        return self._inline

    def _submit(self, work: Work[T]) -> Future[T]:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("onthedot-portal")
            return self._thread.submit(self._on_thread(self._thread, work))

    async def _on_thread(self, thread: LoopThread, work: Work[T]) -> T:
        client = self._clients.get(thread)
        if client is None:
            client = self._new_client()
            await client.open()
            if thread in self._clients:  # a concurrent call was faster
                await client.close()
            client = self._clients.setdefault(thread, client)
        return await work(client)

    def close(self) -> None:
        """Ends the thread, if there is one; it starts again when needed."""
        with self._lock:
            thread = self._thread
            self._thread = None
            self._inline = None
            self._is_synchronous = None
        if thread is not None:
            if self._opening is not None:
                wait([self._opening], timeout=_PATIENCE)  # otherwise a client would be opened after the close
            client = self._clients.pop(thread, None)
            if client is not None:
                thread.submit(_close(client)).result()
            thread.close()

    def after_fork(self) -> None:
        """The threads and connections of the parent do not exist in the child."""
        self._lock = threading.Lock()
        self._by_loop = weakref.WeakKeyDictionary()
        self._clients = weakref.WeakKeyDictionary()
        self._inline = self._thread = self._opening = self.worker_loop = self._is_synchronous = None


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _named(error: StoreError, adds: Adds) -> StoreError:
    """The error with the tasks that were to be added. Those that were sent have been named by the client."""
    if isinstance(adds, NewTask):
        adds = (adds,)
    if not adds:
        return error
    return for_add(error, adds, sent=False)


async def _close(client: StoreClient) -> None:
    await client.results.drain(1.0)
    await client.close()


def run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that does not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("a store that is declared synchronous has suspended")
