"""Run tasks of flows again: all that failed, or what was cancelled because of tasks that run again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence

from onthedot.model.batch_names import batch_task
from onthedot.model.flow_names import counter_flow, is_start_signal
from onthedot.stores.contract import BATCH, NewSignal, Record, Store


async def revive_flow(store: Store, ended: Sequence[Record]) -> int:
    """Run failed and cancelled tasks of a flow again, in the order of `retry_order`.

    Return how many left an ended state.
    """
    await _start_again(store, ended)
    return await _revive(store, [record.uuid for record in retry_order(ended)])


def retry_order(ended: Sequence[Record]) -> list[Record]:
    """Failed ones first, and predecessors before the tasks that follow them.

    So a task finds its counter below the value, and waits. The coordinator of a batch is last: it would take its
    cancelled parts for parts that have just ended.
    """
    return sorted(
        ended, key=lambda record: (batch_task(record.source) is not None, record.state != "failed", record.seq)
    )


async def revive_dependants(
    store: Store, cancelled: Callable[[str], AsyncIterator[Record]], revived: Sequence[Record]
) -> int:
    """Run the tasks again that were cancelled because of these tasks, which run again, and of no others.

    cancelled: the cancelled tasks of a flow
    """
    raised = {name for record in revived if record.links is not None for name in record.links.increments}
    failed = await _failed(store, raised)
    flows = {counter_flow(name) for name in raised if not failed[name]}
    count = 0
    for flow in flows - {None}:
        assert flow is not None
        count += await _revive_followers(store, [record async for record in cancelled(flow)])
    return count


async def _revive_followers(store: Store, cancelled: Sequence[Record]) -> int:
    """A task is added after those that it follows, so one pass in that order finds whole chains."""
    upstream = [record for record in cancelled if record.history.reason == "upstream"]
    waits = {record.uuid: _counter(record) for record in upstream}
    failed = await _failed(store, set(waits.values()))
    uuids: list[str] = []
    for record in sorted(upstream, key=lambda record: record.seq):
        if failed[waits[record.uuid]] or record.links is None:
            continue
        uuids.append(record.uuid)
        for name in failed.keys() & set(record.links.increments):
            failed[name] -= 1
    return await _revive(store, uuids)


def _counter(record: Record) -> str:
    assert record.links is not None
    assert record.links.waits is not None
    return record.links.waits.counters[0][0]


async def _failed(store: Store, counters: Collection[str]) -> dict[str, int]:
    names = sorted(counters)
    failed: dict[str, int] = {}
    for start in range(0, len(names), BATCH):
        page = names[start : start + BATCH]
        failed |= zip(page, [each.failed for each in await store.counters(page)], strict=True)
    return failed


async def _revive(store: Store, uuids: Sequence[str]) -> int:
    count = 0
    for start in range(0, len(uuids), BATCH):
        count += len(await store.revive(uuids[start : start + BATCH]))
    return count


async def _start_again(store: Store, records: Sequence[Record]) -> None:
    """The counter of a start signal is not kept for ever."""
    waits = {record.links.waits for record in records if record.links is not None and record.links.waits is not None}
    names = {wait.counters[0][0] for wait in waits if is_start_signal(wait.counters[0][0])}
    for name in names:
        await store.signal([NewSignal(name, "start")])
