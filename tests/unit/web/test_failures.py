"""Failed tasks by error: counted in the background, the same for page and command, on four stores."""

from __future__ import annotations

import msgspec

from onthedot import App
from onthedot.clock.system import SystemClock
from onthedot.codec.task_failure import TaskFailure
from onthedot.codec.untyped import encode_untyped
from onthedot.operations.failure_counts import FailureCounts
from onthedot.operations.failures import group_failures
from onthedot.stores.contract import ClaimRequest, Ended, Lease, NewTask, SlotPool, Store
from tests.support.app_stores import AppStore
from tests.support.waits import until
from tests.support.web_site import web_site
from tests.unit.operations.error_corpus import errors

FAILED = 600


async def fail(store: Store, found: list[TaskFailure], first: int = 0) -> None:
    """Store failed tasks as a worker would."""
    await store.heartbeat("me", b"", 10**9)
    for start in range(0, len(found), 1000):
        some = found[start : start + 1000]
        news = [NewTask(f"f{first + start + place}", "import", encode_untyped({})) for place in range(len(some))]
        await store.add(news)
        turn = await store.turn("me", [], ClaimRequest(first + start + 1, [SlotPool(1000, {"import": 1000})]))
        assert turn.claim is not None
        ended = [
            Ended(Lease(record.uuid, turn.claim.fence, "me"), "failed", msgspec.json.encode(error))
            for record, error in zip(turn.claim.tasks, some, strict=True)
        ]
        await store.turn("me", ended, None)
    await store.close_session("me")


async def test_failures_are_counted_in_slices_and_again_after_changes(app_store: AppStore) -> None:
    corpus = [error for _, error in errors(FAILED, seed=20261118)]
    app: App[None] = App(app_store.name, store=app_store.url)
    async with app, web_site(app) as site:
        store = app.runtime.store
        counts = FailureCounts(store, SystemClock(), between_checks=0, between_counts=0)
        await fail(store, corpus)
        partial = await counts.look(patience=0)
        assert partial.read_count < FAILED  # no request reads them all

        async def is_counted() -> bool:
            found = await counts.look()
            return found.counted_to is None and found.read_count == found.total

        await until(is_counted)
        found = await counts.look()
        assert (len(found.groups), sum(group.count for group in found.groups), found.total) == (7, FAILED, FAILED)
        assert found.groups == await group_failures(store, int(found.as_of.timestamp() * 1000))

        async def is_shown() -> bool:
            answer = await site.viewer.json("/failures?since=24h")
            return answer["counted_to"] is None and answer["counted"] == FAILED

        await until(is_shown)
        answer = await site.viewer.json("/failures?since=24h")
        rows = answer["items"]
        assert {row["group"]: row["count"] for row in rows} == {group.group: group.count for group in found.groups}
        assert all(sum(row["trend"]) == row["count"] for row in rows)
        assert (await site.viewer.json("/failures?source=other"))["items"] == []

        # A retry and a new failure leave their number as it was.
        (gone,) = (await site.viewer.json("/tasks?q=state:failed&limit=1"))["items"]
        assert await app.operations.retry(gone["uuid"])
        assert await app.operations.cancel(gone["uuid"])
        await fail(store, [TaskFailure("NewError", "never seen")], first=FAILED)
        await until(lambda: has_group(counts, "NewError"))
        assert (await counts.look()).total == FAILED
        await counts.close()


async def has_group(counts: FailureCounts, kind: str) -> bool:
    return any(group.type == kind for group in (await counts.look()).groups)
