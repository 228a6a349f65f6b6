"""The one place where sync code meets the event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from onthedot.client.client import StoreClient
from onthedot.errors import ArgumentError, StoreRefused
from onthedot.stores.capabilities import NO_TRANSACTION, AsyncTransactions, SyncTransactions
from onthedot.stores.contract import Store

T = TypeVar("T")
Work = Callable[[StoreClient], Coroutine[Any, Any, T]]


class LoopThread:
    """A daemon thread with an event loop of its own."""

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

    def close(self, patience: float = 1.0) -> None:
        """Who waits gets an answer, if it comes soon; then all ends."""
        wait(list(self._pending), timeout=patience)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


class Portal:
    """Links by loop: the user's where they connected one, else one on a thread of our own, made when first needed."""

    def __init__(self, client: Callable[[], StoreClient], store: Callable[[], Store]) -> None:
        self._new_client = client
        self._store = store
        self._here: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[StoreClient, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()
        self._inline: StoreClient | None = None
        self._thread: LoopThread | None = None
        self._clients: weakref.WeakKeyDictionary[LoopThread, StoreClient] = weakref.WeakKeyDictionary()
        self._opening: Future[None] | None = None
        self.worker_loop: asyncio.AbstractEventLoop | None = None

    def on_worker_loop(self) -> bool:
        """Would a task run on the event loop of this very thread?"""
        return self.worker_loop is not None and asyncio._get_running_loop() is self.worker_loop

    # -- on the user's own loop

    async def connect(self) -> StoreClient:
        """May be done more than once on a loop: the last to disconnect closes."""
        loop = asyncio.get_running_loop()
        client, times = self._here.get(loop, (None, 0))
        if client is None:
            client = self._new_client()
            await client.open()
        self._here[loop] = (client, times + 1)
        return client

    async def disconnect(self) -> None:
        loop = asyncio.get_running_loop()
        client, times = self._here.pop(loop)
        if times > 1:
            self._here[loop] = (client, times - 1)
        else:
            await client.close()

    async def run(self, work: Work[T], *, waits: bool = False) -> T:
        """From a coroutine, on whatever loop. waits: it may suspend even on a store that never does."""
        here = self._here.get(asyncio.get_running_loop())
        if here is not None:
            return await work(here[0])
        if not waits and self._store().traits.synchronous:
            return await work(self._inline_client())
        return await asyncio.wrap_future(self._submit(work))

    # -- from sync code

    def run_sync(self, work: Work[T], *, waits: bool = False) -> T:
        if not waits and self._store().traits.synchronous:
            return run_without_loop(work(self._inline_client()))
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def in_transaction(self, work: Callable[[SyncTransactions], T]) -> T:
        """On this very thread: the caller's connection, and the transaction on it, are of this thread."""
        store = self._joinable()
        opening = self.ensure_open()
        if opening is not None and isinstance(store, AsyncTransactions):
            opening.result()  # elsewhere it may have to wait for the very transaction that is joined
        return work(store)

    async def in_transaction_awaited(self, work: Callable[[AsyncTransactions], Coroutine[Any, Any, T]]) -> T:
        """On this very loop, likewise."""
        store = self._joinable()
        if not isinstance(store, AsyncTransactions):
            raise ArgumentError("connection=…: on this store it is sync, so write .delay(…) instead of .enqueue(…)")
        if (opening := self.ensure_open()) is not None:
            await asyncio.wrap_future(opening)
        return await work(store)

    def _joinable(self) -> SyncTransactions:
        store = self._store()
        if not isinstance(store, SyncTransactions):
            raise StoreRefused(f"connection=…: {NO_TRANSACTION}; sqlite:/// and postgresql:// do")
        return store

    def ensure_open(self) -> Future[None] | None:
        """Has a link opened, if there is none, and answers with what to wait for."""
        if self._clients or self._here:
            return None
        if self._opening is None or self._opening.done():
            self._opening = self._submit(StoreClient.ready)
        return self._opening

    def _inline_client(self) -> StoreClient:
        """For a store that never suspends: no loop and no thread is needed."""
        if self._inline is None:
            self._inline = self._new_client()
        return self._inline

    def _submit(self, work: Work[T]) -> Future[T]:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("onthedot-bridge")
            return self._thread.submit(self._on_thread(self._thread, work))

    async def _on_thread(self, thread: LoopThread, work: Work[T]) -> T:
        client = self._clients.get(thread)
        if client is None:
            client = self._new_client()
            await client.open()
            if thread in self._clients:  # somebody else was faster
                await client.close()
            client = self._clients.setdefault(thread, client)
        return await work(client)

    def close(self) -> None:
        """Ends the thread, if there is one; it comes back when needed."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._inline = None
        if thread is not None:
            client = self._clients.pop(thread, None)
            if client is not None:
                thread.submit(_close(client)).result()
            thread.close()

    def after_fork(self) -> None:
        """In the child nothing of the parent's threads and connections is alive."""
        self._lock = threading.Lock()
        self._here = weakref.WeakKeyDictionary()
        self._clients = weakref.WeakKeyDictionary()
        self._inline = self._thread = self._opening = self.worker_loop = None


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
    raise RuntimeError("a store that calls itself immediate has suspended")
