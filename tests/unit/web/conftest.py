"""An app with a few tasks, in a memory store."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, IntervalSchedule


@pytest.fixture
def shop() -> App[Any]:
    app: App[Any] = App("shop", store="memory://", stop_timeout=0)

    @app.task
    async def send(to: str, password: str = "", order: dict[str, Any] | None = None) -> str:
        if to == "bob":
            raise ValueError(f"no {to} at https://u:{password}@mail.example")
        return to

    @app.task(schedule=IntervalSchedule(3600))
    async def tick() -> None: ...

    return app
