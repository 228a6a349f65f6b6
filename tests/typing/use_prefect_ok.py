"""The Prefect integration, as mypy --strict and pyright accept it. Prefect itself need not be installed."""

from __future__ import annotations

from typing import assert_type

from onthedot.integrations.prefect import Resumable, prefect_run, wait_for


class Report:
    def __init__(self, key: str) -> None:
        self.id = key

    async def status(self) -> str:
        return "pending"

    async def wait(self) -> list[int]:
        return [1]


async def use() -> None:
    assert_type(prefect_run(), str)
    assert_type(await wait_for(Report("a")), list[int])
    assert_type(await wait_for(Report("a"), suspend=True), list[int])
    handle: Resumable[list[int]] = Report("b")
    assert_type(await wait_for(handle), list[int])
