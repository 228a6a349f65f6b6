"""An app with a few tasks, in a memory store; modules that run on every store have a fixture of their own."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, IntervalSchedule
from tests.support.app_stores import AppStore


def new_shop(store: AppStore) -> App[Any]:
    app: App[Any] = App(store.name, store=store.url, stop_timeout=0)

    @app.task
    async def send(to: str, password: str = "", order: dict[str, Any] | None = None) -> str:
        if to == "bob":
            raise ValueError(f"no {to} at https://u:{password}@mail.example")
        return to

    @app.task(schedule=IntervalSchedule(3600))
    async def tick() -> None: ...

    return app


@pytest.fixture
def shop() -> App[Any]:
    return new_shop(AppStore("shop", "memory://"))
