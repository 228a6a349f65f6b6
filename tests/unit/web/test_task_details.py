"""One task as the API shows it: reasons with the requests that end them, exact numbers, related tasks, its timeline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onthedot import App, AtMost, Rate, current_task
from tests.support.waits import SOON, until
from tests.support.web_site import WebSite, web_site

LONG_NUMBER = 2**63 + 1


@pytest.fixture
def studio() -> App[Any]:
    """Tasks that are held back by everything that an operator can change."""
    app: App[Any] = App("studio", store="memory://", stop_timeout=0)

    @app.task(concurrency=1)
    async def build(seconds: float = 60.0) -> None:
        await asyncio.sleep(seconds)

    @app.task(limits=[AtMost(1, by="customer")])
    async def deliver(customer: str, seconds: float = 60.0) -> str:
        await asyncio.sleep(seconds)
        return customer

    @app.task(limits=[Rate("1/h", burst=1)])
    async def report(number: int) -> int:
        return number

    @app.task
    async def approve() -> str:
        found = await current_task().wait_any("approved", "rejected")
        return found.name

    @app.task
    async def make(size: int) -> list[int]:
        return [LONG_NUMBER] * size

    return app


async def explained(site: WebSite, uuid: str) -> dict[str, Any]:
    detail: dict[str, Any] = await site.viewer.json(f"/tasks/{uuid}?include=explain")
    return detail["explain"] or {"reason": "ended"}


async def has_reason(site: WebSite, uuid: str, reason: str) -> bool:
    return (await explained(site, uuid))["reason"] == reason


async def act(site: WebSite, action: dict[str, Any], **more: object) -> None:
    """As the page does after its button."""
    answer = await site.operator.send(action["method"], action["path"], {**action["body"], **more})
    assert answer.status == 200, answer


async def test_resume_ends_the_pauses_of_a_source_and_of_a_key(studio: App[Any]) -> None:
    async with studio.running(), web_site(studio) as site:
        operations = studio.operations.acting_as("ana")
        await operations.pause("make", reason="deploy")
        await operations.pause("deliver", key="a/b", reason="vendor down")
        made = await studio.named("make").enqueue(size=1)
        delivered = await studio.named("deliver").enqueue(customer="a/b", seconds=0.0)
        for handle, reason, path in (
            (made, "source_paused", "/sources/make/resume"),
            (delivered, "key_paused", "/sources/deliver/resume"),
        ):
            found = await explained(site, handle.uuid)
            assert (found["reason"], found["action"]["label"], found["action"]["path"]) == (reason, "resume", path)
            await act(site, found["action"])
            await handle.result(timeout=SOON)
            assert (await explained(site, handle.uuid))["reason"] == "ended"


async def test_limit_that_is_changed_lets_the_task_start(studio: App[Any]) -> None:
    async with studio.running(), web_site(studio) as site:
        build, deliver, report = (studio.named(name) for name in ("build", "deliver", "report"))
        first = await build.enqueue()
        held = await build.enqueue(seconds=0.0)
        await deliver.enqueue(customer="acme")
        other = await deliver.enqueue(customer="acme", seconds=0.0)
        await report.enqueue(number=1)
        paced = await report.enqueue(number=2)
        await until(lambda: has_reason(site, first.uuid, "running"))
        for handle, reason, change in (
            (held, "source_limit", {"cap": 2}), (other, "key_limit", {"cap": 2}), (paced, "rate", {"rate": "100/s"}),
        ):  # fmt: skip
            await until(lambda handle=handle, reason=reason: has_reason(site, handle.uuid, reason))
            found = await explained(site, handle.uuid)
            assert found["action"]["label"] == "limit"
            await act(site, found["action"], **change)
            await handle.result(timeout=SOON)
        (holder,) = (await explained(site, first.uuid))["held_by"]
        assert (holder["uuid"], holder["source"]) == (first.uuid, "build")
        assert holder["worker"]
        assert holder["since"]


async def test_signal_that_is_sent_resumes_the_task_alone(studio: App[Any]) -> None:
    async with studio.running(), web_site(studio) as site:
        handle = await studio.named("approve").enqueue()
        other = await studio.named("approve").enqueue()
        await until(lambda: has_reason(site, handle.uuid, "waiting_signal"))
        await until(lambda: has_reason(site, other.uuid, "waiting_signal"))
        detail = await site.viewer.json(f"/tasks/{handle.uuid}?include=explain,timeline")
        assert detail["waits_for"]["signals"] == ["approved", "rejected"]
        action = detail["explain"]["action"]
        assert (action["label"], action["path"], action["body"]) == ("signal", "/signals/approved", {"to": handle.uuid})
        last = detail["timeline"][-1]
        assert (last["kind"], last["to"], last["text"]) == ("waiting", None, 'signal "approved" or "rejected"')
        await act(site, action, payload=True)
        assert await handle.result(timeout=SOON) == "approved"
        assert await has_reason(site, other.uuid, "waiting_signal")
        assert (await site.viewer.json(f"/tasks/{handle.uuid}"))["waits_for"] is None


async def test_reasons_that_no_operator_ends_have_no_action(studio: App[Any]) -> None:
    async with studio, web_site(studio) as site:
        handle = await studio.named("make").enqueue(size=1)
        found = await explained(site, handle.uuid)
        assert (found["reason"], found["action"]) == ("no_worker", None)


async def test_cancelled_task_keeps_its_reason(studio: App[Any]) -> None:
    async with studio, web_site(studio) as site:
        handle = await studio.named("make").enqueue(size=1)
        await site.operator.post(f"/tasks/{handle.uuid}/cancel", {"reason": "wrong customer"})
        found = await explained(site, handle.uuid)
        assert (found["reason"], found["action"]) == ("ended", None)
        assert found["text"].endswith(": wrong customer")


async def test_long_numbers_are_exact_and_long_results_are_cut(studio: App[Any]) -> None:
    async with studio.running(), web_site(studio) as site:
        make = studio.named("make")
        small = await make.options(metadata={"order": LONG_NUMBER}).enqueue(size=1)
        large = await make.enqueue(size=5000)
        await large.result(timeout=SOON)
        await small.result(timeout=SOON)
        detail = await site.viewer.json(f"/tasks/{small.uuid}")
        assert (detail["result_text"], detail["result_cut"]) == (f"[{LONG_NUMBER}]", False)
        assert detail["metadata_text"] == f'{{"order":{LONG_NUMBER}}}'
        detail = await site.viewer.json(f"/tasks/{large.uuid}")
        whole = await site.viewer.get(f"/tasks/{large.uuid}/result")
        assert (detail["result_cut"], detail["result"], detail["result_size"]) == (True, None, len(whole.body))
        assert len(detail["result_text"]) == 65_536
        assert whole.body.startswith(detail["result_text"].encode())


async def test_related_tasks_are_counted(studio: App[Any]) -> None:
    async with studio.running(), web_site(studio) as site:
        deliver = studio.named("deliver")
        handles = [await deliver.enqueue(customer="acme inc", seconds=0.0) for _ in range(3)]
        other = await deliver.enqueue(customer="globex", seconds=0.0)
        for handle in (*handles, other):
            await handle.result(timeout=SOON)
        detail = await site.viewer.json(f"/tasks/{other.uuid}?include=related")
        (same,) = detail["related"]["same"]
        assert (same["kind"], same["name"], same["n"], same["exact"]) == ("argument", "customer", 1, True)
        detail = await site.viewer.json(f"/tasks/{handles[0].uuid}?include=related")
        (same,) = detail["related"]["same"]
        assert (same["value"], same["n"]) == ("acme inc", 3)
        found = await site.viewer.json(f"/tasks?q={same['q'].replace(' ', '%20')}")
        assert {row["uuid"] for row in found["items"]} == {handle.uuid for handle in handles}


async def test_failed_task_has_the_number_of_tasks_with_its_error(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        handles = [await shop.named("send").enqueue(to="bob") for _ in range(2)]
        for handle in handles:
            await until(lambda handle=handle: has_ended(handle))

        async def is_counted() -> bool:
            detail = await site.viewer.json(f"/tasks/{handles[0].uuid}?include=related")
            (same,) = detail["related"]["same"]
            return (same["kind"], same["n"], same["exact"]) == ("error", 2, True)

        await until(is_counted)


async def has_ended(handle: Any) -> bool:
    return (await handle.info()).state.ended


async def test_pauses_in_the_timeline_name_the_operator(studio: App[Any]) -> None:
    async with studio.running(), web_site(studio) as site:
        await site.operator.post("/sources/make/pause", {"reason": "token=hunter2 is wrong"})
        handle = await studio.named("make").enqueue(size=1)
        await asyncio.sleep(0.15)  # shorter parts are not looked at: nobody pauses and resumes in less
        await site.operator.post("/sources/make/resume", {})
        await handle.result(timeout=SOON)
        pending, _ = (await site.viewer.json(f"/tasks/{handle.uuid}/timeline"))["items"]
        (pause,) = pending["paused"]
        assert (pause["user"], pause["from"]) == ("ana", pending["from"])
        assert pause["to"] <= pending["to"]
        assert "hunter2" not in pause["reason"]
