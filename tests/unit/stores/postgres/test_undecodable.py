"""Records that cannot be decoded: they end alone, and do not disturb reads."""

from __future__ import annotations

import pytest

from onthedot import App, TaskFailed
from onthedot.stores.contract import NewTask, Policy
from tests.support.services.postgres import Service
from tests.unit.stores.postgres.shop import opened

DAMAGE = "UPDATE onthedot.task SET policy = %s WHERE uuid = %s"


@pytest.mark.parametrize("policy", ["not a policy", '{"priority": "high"}', "[]", '{"tags": ["t"'])
def test_a_task_whose_policy_cannot_be_read_fails_and_others_run(postgres: Service, named: str, policy: str) -> None:
    app: App[None] = App(named, store=postgres.url, poll_interval=60)

    @app.task
    async def echo(number: int) -> int:
        return number

    handles = [echo.options(after=1).delay(number) for number in range(20)]
    postgres.ask(DAMAGE, policy, handles[7].uuid)
    with app.background():
        with pytest.raises(TaskFailed, match="its record cannot be read"):
            handles[7].result(timeout=20)
        others = [handle for handle in handles if handle is not handles[7]]
        assert [handle.result(timeout=20) for handle in others] == [n for n in range(20) if n != 7]
    app.shutdown()


async def test_a_history_of_a_newer_version_is_undecodable(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        await store.add([NewTask("u1", "a", b""), NewTask("u2", "a", b"")])
        postgres.ask("UPDATE onthedot.task SET reason = 'newer' WHERE uuid = 'u1'")
        assert [record and record.history.reason for record in await store.get(["u1", "u2"])] == ["undecodable", "due"]


async def test_a_search_by_tag_skips_policies_that_cannot_be_read(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        tagged = Policy(tags=("t",))
        await store.add([NewTask(uuid, "a", b"", policy=tagged) for uuid in ("u1", "u2", "u3")])
        postgres.ask(DAMAGE, '{"tags": ["t"', "u2")
        page = await store.find({"tag": "t"}, None, 10)
        assert [record.uuid for record in page.rows] == ["u3", "u1"]
