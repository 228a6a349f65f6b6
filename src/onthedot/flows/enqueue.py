"""Adding flows: one add for most; for very large ones ordered adds and the start signal."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.client.client import StoreClient
from onthedot.errors import StoreRefused
from onthedot.flows.tasks import MAX_AT_ONCE, Flow
from onthedot.model.flow_names import start_signal
from onthedot.operations.workers import live_workers
from onthedot.stores.contract import MAX_ADD, SESSION_FORMAT, Added, NewSignal, Store


async def add_flow(client: StoreClient, flow: Flow, *, named: bool) -> Added:
    """Stores all tasks, or none that could run. Returns the answer for the last task.

    named: the caller chose the uuid, so the flow may exist already; then the first one remains, as a whole
    """
    if flow.is_single:
        return await client.add(flow.last, remote=bool(flow.remote))
    if await is_stored(client.store, flow, named=named):
        if len(flow) > MAX_AT_ONCE:  # the stored one may be larger, in bytes
            await _start(client.store, flow.uuid)
        return Added(flow.uuid, fresh=False)
    if not flow.starts:
        answers: Sequence[Added] = await client.add_many(flow.tasks, flow.remote, MAX_ADD)
        if not all(added.fresh for added in answers):  # some were stored by an add of several parts
            await _start(client.store, flow.uuid)
        return answers[len(flow.members)]
    for begin in range(0, len(flow.members), MAX_AT_ONCE):
        await client.add_many(flow.members[begin : begin + MAX_AT_ONCE], flow.remote)
    answers = await client.add_many([flow.last, *flow.handlers], flow.remote)
    await _start(client.store, flow.uuid)
    return answers[0]


async def is_stored(store: Store, flow: Flow, *, named: bool) -> bool:
    """Whether a flow of this uuid exists; StoreRefused if it cannot be added now. named: as in `add_flow`."""
    if flow.is_single:
        return False
    await check_workers(store)
    return named and (await store.get([flow.uuid]))[0] is not None


async def check_workers(store: Store) -> None:
    """An old worker would end tasks without incrementing counters. Raises StoreRefused, which names it."""
    for worker in await live_workers(store):
        if worker.format < SESSION_FORMAT:
            where = f"{worker.host or '?'} (pid {worker.pid}, version {worker.version or '?'})"
            raise StoreRefused(
                f"worker {worker.id} on {where} does not know flows and would leave their tasks waiting for ever; stop "
                "or upgrade it, then enqueue the flow again"
            )


async def _start(store: Store, flow: str) -> None:
    await store.signal([NewSignal(start_signal(flow), "start")])
