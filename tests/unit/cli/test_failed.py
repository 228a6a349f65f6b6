"""``onthedot failed``: ten thousand errors and their few causes."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import msgspec

from onthedot import current_task
from onthedot.codec.task_failure import TaskFailure
from onthedot.codec.untyped import encode_untyped
from onthedot.stores.contract import ClaimRequest, Ended, Lease, NewTask, SlotPool
from onthedot.stores.sqlite import SqliteStore
from tests.support.waits import SOON
from tests.unit.cli.conftest import Console
from tests.unit.operations.error_corpus import errors


async def failed(path: Path, found: list[TaskFailure]) -> None:
    """Store failed tasks as a worker would."""
    store = SqliteStore(path, name="shop")
    number = 0
    await store.open()
    await store.heartbeat("me", b"", 10**9)
    for first in range(0, len(found), 1000):
        some = found[first : first + 1000]
        number = number + 1
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


def test_ten_thousand_errors_are_seven_groups(console: Console, tmp_path: Path) -> None:
    corpus = errors(10_000, seed=20261116)
    asyncio.run(failed(tmp_path / "shop.db", [error for _, error in corpus]))
    groups = console.json("failed")["groups"]
    causes = Counter(cause for cause, _ in corpus)
    assert [group["count"] for group in groups] == sorted(causes.values(), reverse=True)
    assert len(groups) == 7
    by_uuid = {f"t{place}": cause for place, (cause, _) in enumerate(corpus)}
    assert {by_uuid[group["example"]]: group["count"] for group in groups} == dict(causes)
    for group in groups:
        listed = console.json("task", "list", "--group", group["group"], "--limit", "3")["tasks"]
        assert {by_uuid[task["uuid"]] for task in listed} == {by_uuid[group["example"]]}


def test_failed_shows_one_source(console: Console) -> None:
    console.app.task(name="other")(console.fail)
    console.work(*(console.add(source, order=number) for source in ("fail", "other") for number in range(2)))
    assert {group["source"] for group in console.json("failed")["groups"]} == {"fail", "other"}
    (group,) = console.json("failed", "--source", "other", "--since", "1h")["groups"]
    assert (group["source"], group["count"]) == ("other", 2)
    assert console.json("failed", "--source", "nobody")["groups"] == []


def test_failed_child_is_retried_before_its_parent(console: Console) -> None:
    broken = True

    @console.app.task
    async def price(item: int) -> int:
        if broken:
            raise ValueError("no price")
        return item

    @console.app.task
    async def double(price: int) -> int:
        return 2 * price

    @console.app.task
    async def order() -> int:
        return await current_task().run(price.s(7) | double)

    handle = order.delay()
    with console.app.background():
        assert handle.exception(timeout=SOON) is not None
    (child,) = console.app.sync.find(source="price")
    commands = console.do("failed", "--source", "price").splitlines()[-3:]
    assert commands[0] == f"look:   onthedot task show {child.uuid[-10:]}"
    parent = f"onthedot task retry {handle.uuid[-10:]}"
    assert commands[2] == f"then:   {parent}  # order ran it as a child, and has failed, too"
    assert "then:" not in console.do("failed", "--source", "order")
    broken = False
    for line in commands[1:]:
        command, *_ = line.partition("onthedot ")[2].split("  #")
        console.do(*command.split(), "--yes")
    with console.app.background():
        assert handle.result(timeout=SOON) == 14
    assert len(console.app.sync.find(source="price")) == 1  # the parent takes the result of the mended child
    assert "then:" not in console.invoke("failed").output


def test_groups_with_the_same_message_show_their_line_of_code(console: Console) -> None:
    def near(number: int) -> None:
        raise ValueError(f"no order {number}")

    def far(number: int) -> None:
        if number:
            raise ValueError(f"no order {number}")

    console.app.task(name="import")(lambda number: near(number) if number % 2 else far(number))
    console.work(*(console.add("import", number=number) for number in range(1, 7)))
    groups = console.json("failed")["groups"]
    assert [(group["count"], group["message"]) for group in groups] == [(3, "no order …")] * 2
    assert {group["place"].partition(":")[0] for group in groups} == {"near", "far"}
    lines = console.do("failed").splitlines()
    places = [line.partition(":")[0] for line in lines if line.startswith("  in ")]
    assert sorted(places) == ["  in far", "  in near"]
