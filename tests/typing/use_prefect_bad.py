"""Each marked line is an error for mypy --strict and for pyright (test_typing.py compares the lines)."""

from __future__ import annotations

from onthedot.integrations.prefect import prefect_run, wait_for


class Report:
    id = "a"

    async def status(self) -> str:
        return "pending"

    async def wait(self) -> list[int]:
        return [1]


class WithoutStatus:
    id = "a"

    async def wait(self) -> list[int]:
        return [1]


async def use() -> None:
    number: int = prefect_run()  # E a str
    text: str = await wait_for(Report())  # E a list
    await wait_for(WithoutStatus())  # E it has no status
    await wait_for("a")  # E an id
    await wait_for(Report(), True)  # E by name only
    print(number, text)
