"""The list of batches reads only the last tasks of flows, where each batch is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from onthedot import App, BatchPolicy, SizeTable, group
from onthedot.operations.operations import Operations
from onthedot.stores.contract import Page


async def test_lists_of_batches_and_flows_do_not_read_other_tasks(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(batch=BatchPolicy(split=SizeTable({}, other=5)))
    async def names(count: int) -> list[str]:
        return [str(number) for number in range(count)]

    @app.task
    async def plain(number: int) -> None: ...

    async with app:
        batches = [await app.batch(names, count=5) for _ in range(2)]
        flow = await group([plain.s(1), plain.s(2)]).enqueue()
        await plain.enqueue_many([(number,) for number in range(300)])
        store: Any = app.runtime.store
        find = store.find
        scanned: list[int] = []

        async def counted(where: Mapping[str, str], after: str | None, limit: int) -> Page:
            page: Page = await find(where, after, limit)
            scanned.append(page.scanned)
            return page

        monkeypatch.setattr(store, "find", counted)
        operations = Operations(store, "test")
        assert [row.id for row in await operations.batches.newest(50)] == [batches[1].id, batches[0].id]
        assert [row.id for row in await operations.batches.newest(1)] == [batches[1].id]
        assert [row.id for row in await operations.batches.newest(50, "names")] == [batches[1].id, batches[0].id]
        assert await operations.batches.newest(50, "other") == []
        assert [row.uuid for row in await operations.list_flows(50)] == [flow.uuid]
        assert await operations.flows.count_alive() == (1, True)
        most = 305 if app.runtime.url.startswith("memory:") else 3  # two batches and a flow; memory looks at all
        assert max(scanned) <= most
