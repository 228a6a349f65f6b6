"""The last progress of a task is stored, also if the task ends at once and the store is slow."""

from __future__ import annotations

import asyncio
from pathlib import Path

from onthedot import App, current_task


async def test_last_progress_before_the_end_is_stored(tmp_path: Path) -> None:
    app = App("shop", store=f"sqlite:///{tmp_path}/shop.db")

    @app.task
    async def copy(files: int) -> None:
        for number in range(1, files + 1):
            await asyncio.sleep(0.002)
            current_task().progress(number, files)

    async with app.running():
        handles = await copy.enqueue_many([{"files": number} for number in range(1, 30)])
        await asyncio.gather(*handles)
        infos = [await handle.info() for handle in handles]
    assert [info.progress for info in infos] == [(number, number) for number in range(1, 30)]
