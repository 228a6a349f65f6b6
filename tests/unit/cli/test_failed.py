"""``onthedot failed``: ten thousand errors of a night, and the few causes behind them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import msgspec

from onthedot.codec.untyped import encode_untyped
from onthedot.model.task import TaskFailure
from onthedot.stores.contract import ClaimRequest, Ended, Lease, NewTask, SlotPool
from onthedot.stores.sqlite import SqliteStore
from tests.unit.cli.conftest import Desk
from tests.unit.operations.error_corpus import errors


async def failed(path: Path, found: list[TaskFailure]) -> None:
    """As a worker would have left them."""
    store, number = SqliteStore(path, name="shop"), 0
    await store.open()
    await store.heartbeat("me", b"", 10**9)
    for first in range(0, len(found), 1000):
        some, number = found[first : first + 1000], number + 1
        await store.add([NewTask(f"t{first + place}", "import", encode_untyped({})) for place in range(len(some))])
        turn = await store.turn("me", [], ClaimRequest(number, [SlotPool(1000, {"import": 1000})]))
        assert turn.claim is not None
        ended = [
            Ended(Lease(record.uuid, turn.claim.fence, "me"), "failed", msgspec.json.encode(error))
            for record, error in zip(turn.claim.tasks, some, strict=True)
        ]
        await store.turn("me", ended, None)
    await store.close_session("me")
    await store.close()


def test_ten_thousand_errors_of_seven_causes(desk: Desk, tmp_path: Path) -> None:
    corpus = errors(10_000, seed=20261116)
    asyncio.run(failed(tmp_path / "shop.db", [error for _, error in corpus]))
    groups = desk.json("failed")["groups"]
    causes = Counter(cause for cause, _ in corpus)
    assert [group["count"] for group in groups] == sorted(causes.values(), reverse=True)
    assert len(groups) == 7
    by_uuid = {f"t{place}": cause for place, (cause, _) in enumerate(corpus)}
    assert {by_uuid[group["example"]]: group["count"] for group in groups} == dict(causes)
    for group in groups:
        listed = desk.json("task", "list", "--group", group["group"], "--limit", "3")["tasks"]
        assert {by_uuid[task["uuid"]] for task in listed} == {by_uuid[group["example"]]}


def test_of_one_source(desk: Desk) -> None:
    desk.app.task(name="other")(desk.fail)
    desk.work(*(desk.add(source, order=number) for source in ("fail", "other") for number in range(2)))
    assert {group["source"] for group in desk.json("failed")["groups"]} == {"fail", "other"}
    (group,) = desk.json("failed", "--source", "other", "--since", "1h")["groups"]
    assert (group["source"], group["count"]) == ("other", 2)
    assert desk.json("failed", "--source", "nobody")["groups"] == []


def test_two_groups_with_the_same_words_say_where_they_come_from(desk: Desk) -> None:
    def near(number: int) -> None:
        raise ValueError(f"no order {number}")

    def far(number: int) -> None:
        if number:
            raise ValueError(f"no order {number}")

    desk.app.task(name="import")(lambda number: near(number) if number % 2 else far(number))
    desk.work(*(desk.add("import", number=number) for number in range(1, 7)))
    groups = desk.json("failed")["groups"]
    assert [(group["count"], group["message"]) for group in groups] == [(3, "no order …")] * 2
    assert {group["place"].partition(":")[0] for group in groups} == {"near", "far"}
    lines = desk.do("failed").splitlines()
    assert {"near:" in line for line in lines[1:3]} == {True, False}
