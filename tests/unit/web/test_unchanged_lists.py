"""Lists that have not changed are not sent again: 304 to the tag of the answer before."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App
from tests.support.waits import until
from tests.support.web_site import web_site


@pytest.mark.parametrize("path", ["/overview", "/sources", "/schedules", "/workers", "/limits", "/failures", "/series"])
async def test_unchanged_list_is_not_sent_again(shop: App[Any], path: str) -> None:
    async with shop, web_site(shop) as site:
        await shop.named("send").enqueue(to="ann")
        tags: set[str] = set()

        async def is_unchanged() -> bool:
            """Answers with the time of a read change by themselves, twice per second at most."""
            first = await site.viewer.get(path)
            assert first.status == 200
            tags.add(first.headers["etag"])
            again = await site.viewer.get(path, If_None_Match=first.headers["etag"])
            assert again.status == 200 or (again.body, again.headers["etag"]) == (b"", first.headers["etag"])
            return again.status == 304

        await until(is_unchanged)
        assert all(tag.startswith('W/"') for tag in tags)
        assert (await site.viewer.get(path, If_None_Match='W/"other"')).status == 200


async def test_list_that_has_changed_is_sent(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        await shop.named("send").enqueue(to="ann")
        tag = (await site.viewer.get("/limits")).headers["etag"]
        await site.operator.post("/sources/send/pause", {"reason": "vendor down"})
        answer = await site.viewer.get("/limits", If_None_Match=tag)
        assert (answer.status, answer.headers["etag"] != tag) == (200, True)
