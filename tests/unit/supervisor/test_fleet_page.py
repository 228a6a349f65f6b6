"""The page of a fleet, without a worker."""

from __future__ import annotations

from pathlib import Path

from onthedot import App
from onthedot.supervisor.fleet_page import FleetPage, StoreSpec
from tests.support.services.ports import free_port


async def test_store_that_does_not_answer_is_one_line() -> None:
    page = FleetPage(100)
    text = await page.text(StoreSpec(f"redis://127.0.0.1:{free_port()}", "shop"))
    assert text.splitlines()[-1] == "onthedot_store_up 0"
    await page.close()


async def test_page_is_kept_for_a_while(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    app = App("shop", store=url)
    page = FleetPage(100)
    first = await page.text(StoreSpec(url, "shop"))
    async with app:
        await app.named("greet").enqueue(name="ann")
    assert await page.text(StoreSpec(url, "shop")) == first
    await page.close()
    later = FleetPage(100)
    assert 'onthedot_queue_depth{source="greet",state="ready"} 1\n' in await later.text(StoreSpec(url, "shop"))
    await later.close()
