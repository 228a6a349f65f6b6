"""Changes by operators are in the audit log, whichever way they go; changes by programs are not."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, IntervalSchedule, StoreUnavailable
from onthedot.errors import ArgumentError
from onthedot.events import Event
from onthedot.flows.signals import new_signal
from onthedot.operations import Operations
from onthedot.operations.audit import Actor, system_user
from onthedot.stores.contract import SeriesEntry
from tests.support.app_stores import AppStore, app_store

__all__ = ["app_store"]
ANN = Actor("ann", via="page")


async def entries(app: App[Any]) -> list[tuple[str, ...]]:
    """The oldest first: action, target, state, reason."""
    found = await operations(app).audit.newest(100)
    return [(each.entry.action, each.entry.target, each.entry.state, each.entry.reason) for each in reversed(found)]


def operations(app: App[Any]) -> Operations:
    return Operations(app.runtime.store, "client")


def make_app(url: str, name: str = "shop") -> App[Any]:
    app: App[Any] = App(name, store=url, stop_timeout=0)

    @app.task
    async def send(to: str) -> str:
        return to

    @app.task(schedule=IntervalSchedule(3600))
    async def tick() -> None: ...

    return app


async def test_changes_through_app_operations_are_recorded_and_those_of_programs_are_not(app_store: AppStore) -> None:
    app = make_app(app_store.url, app_store.name)
    async with app:
        handle = await app.named("send").options(after=3600).enqueue(to="ann")
        await handle.cancel()
        await app.retry(handle.uuid)
        await app.pause("send")
        await app.resume("send")
        await app.signal("approved")
        await app.cancel(handle.uuid)
        assert await entries(app) == []
        await app.operations.retry(handle.uuid)
        await app.operations.acting_as("ben", "vendor is down").pause("send")
        await app.operations.resume("send")
        await app.operations.set_limit("send", cap=2)
        await app.operations.freeze("send")
        await app.operations.drain("tick", 5)
        await app.operations.thaw("send")
        await app.operations.signal("approved", id="s-1")
        await app.operations.cancel(handle.uuid, reason="typo")
        found = await operations(app).audit.newest(100)
        assert await entries(app) == [
            ("retry", handle.uuid, "done", ""),
            ("pause", "send", "done", "vendor is down"),
            ("resume", "send", "done", ""),
            ("limit", "send", "done", ""),
            ("freeze", "send", "done", ""),
            ("drain", "tick", "done", ""),
            ("thaw", "send", "done", ""),
            ("signal", "approved", "done", ""),
            ("cancel", handle.uuid, "done", "typo"),
        ]
        assert {(each.entry.user, each.entry.via) for each in found} == {(system_user(), "code"), ("ben", "code")}
        assert {each.entry.changed for each in found} == {1}


async def test_sync_operations_are_recorded_and_their_short_forms_are_not() -> None:
    app = make_app("memory://")
    with app.background():
        app.sync.pause("send")
        app.sync.resume("send")
        app.sync.operations.pause("send", reason="mail server is down")
        app.sync.acting_as("ben").resume("send")
        found = app.runtime.portal.run_sync(lambda client: client.operations.audit.newest(9))
        assert [(each.entry.user, each.entry.action) for each in found] == [
            ("ben", "resume"),
            (system_user(), "pause"),
        ]


async def test_every_group_of_operations_records_its_changes() -> None:
    app = make_app("memory://")
    async with app.running():
        acting = operations(app).acting_as(ANN)
        flow = (await app.named("send").options(after=3600).enqueue(to="ann")).uuid
        await acting.flows.cancel(flow)
        await acting.flows.retry(flow)
        await acting.batches.freeze("names")
        await acting.batches.thaw("names")
        await acting.batches.degrade("names")
        await acting.batches.restore("names")
        await acting.schedules.pause("tick", "quiet")
        await acting.schedules.resume("tick")
        await acting.schedules.run("tick")
        await acting.signals.send(new_signal("approved", to=flow))
        await acting.outbox.pause("shop.events", "vendor")
        await acting.outbox.resume()
        await acting.outbox.retry("e-1", "e-2")
        await acting.outbox.discard("e-1", reason="broken")
        async with acting.recorded("add", "send") as note:
            note.changed = 1
        assert [each[:2] for each in await entries(app)] == [
            ("cancel flow", flow),
            ("retry flow", flow),
            ("freeze", "names:batch"),
            ("thaw", "names:batch"),
            ("degrade", "names:batch"),
            ("restore", "names:batch"),
            ("pause schedule", "tick"),
            ("resume schedule", "tick"),
            ("run schedule", "tick"),
            ("signal", f"approved to {flow}"),
            ("pause outbox", "shop.events"),
            ("resume outbox", "all topics"),
            ("retry event", "2: e-1, e-2"),
            ("discard event", "e-1"),
            ("add", "send"),
        ]


async def test_refused_change_is_recorded_as_failed() -> None:
    app = make_app("memory://")
    async with app:
        with pytest.raises(ArgumentError):
            await operations(app).acting_as(ANN).pause("no source", reason="typo")
        assert await entries(app) == [("pause", "no source", "failed", "typo")]


async def test_change_without_an_entry_is_refused_unless_it_stops_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app("memory://")
    async with app.running():
        uuid = (await app.named("send").options(after=3600).enqueue(to="ann")).uuid
        await app.publish(Event("Shop.Order.Packed", {}, aggregate_id="1"))

        async def refuse(*_: object) -> bool:
            raise StoreUnavailable("no answer")

        monkeypatch.setattr(app.runtime.store, "write_series", refuse)
        acting = operations(app).acting_as(ANN)
        for change in (
            acting.freeze("send"),
            acting.retry(uuid),
            acting.outbox.discard("e-1"),
            acting.flows.retry(uuid),
        ):
            with pytest.raises(StoreUnavailable):
                await change
        assert await operations(app).modes.of("send") == ""
        assert not await acting.pause("send")
        assert not await acting.outbox.pause()
        assert await acting.cancel(uuid) == 1
        assert await acting.schedules.pause("tick")


async def test_page_follows_the_last_entry_of_the_one_before() -> None:
    app = make_app("memory://")
    async with app:
        acting = operations(app).acting_as(ANN)
        for number in range(5):
            await acting.limits.set("send", cap=number + 1)
        first = await acting.audit.newest(2)
        second = await acting.audit.newest(9, before=first[-1].id)
        assert len({each.id for each in (*first, *second)}) == 5
        assert (len(first), len(second)) == (2, 3)


async def test_entry_of_a_newer_version_does_not_hide_the_others() -> None:
    app = make_app("memory://")
    async with app:
        acting = app.operations.acting_as("ann")
        await acting.pause("send", reason="vendor is down")
        strange = SeriesEntry("audit", int(app.runtime.clock.now()), "0", b'{"state": "postponed"}')
        await app.runtime.store.write_series([strange])
        await acting.resume("send")
        audit = operations(app).audit
        assert [entry[0] for entry in await entries(app)] == ["pause", "resume"]
        assert [each.entry.action for each in await audit.changes_of_pauses(None, 100)] == ["pause", "resume"]
        assert await audit.get(f"{strange.at}.{strange.writer}") is None
