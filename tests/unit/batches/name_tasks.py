"""A task that makes names, as batches of the tests use it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from onthedot import App, BatchPolicy, Dedup, SizeTable, current_task


@dataclass(frozen=True)
class Name:
    name: str
    by: str = "names"


def letters(number: int) -> str:
    """Names that are not similar to each other."""
    return "".join(chr(ord("a") + int(digit, 32) % 26) * 3 for digit in f"{number * 7919:06x}")


class NameTasks:
    """The tasks of these tests, declared on one app. The attributes decide how its parts behave."""

    def __init__(self, app: App, **policy: Any) -> None:
        self.runs: list[str] = []  # ids of the parts that began
        self.sizes: list[int] = []
        self.fails: set[int] = set()  # indexes of parts that fail
        self.gate: asyncio.Event | None = None  # parts wait for it
        self.gated: set[int] | None = None  # None: all parts
        self.live = 0
        self.most_live = 0
        self.made = 0
        self.repeats = False  # every part makes the same names

        @app.task
        async def one_big_call(type: str, count: int, style: str = "") -> list[Name]:  # noqa: A002 - as the parameter is called
            return [Name(f"big {letters(number)}", by="one_big_call") for number in range(count)]

        options = {
            "split": SizeTable({"character_name": 20, "item": 16}, other=10),
            "dedup": Dedup(threshold={"item": 0.92}, other=0.97),
            "fallback": one_big_call,
        } | policy

        @app.task(batch=BatchPolicy(**options))
        async def names(type: str, count: int, style: str = "") -> list[Name]:  # noqa: A002 - as the parameter is called
            return await self._make(count)

        @app.task(batch=BatchPolicy())
        async def double(items: list[int]) -> list[int]:
            index = self._begin()
            await self._pass_gate(index)
            if index in self.fails:
                raise ValueError(f"no part {index}")
            return [item * 2 for item in items]

        self.names = names
        self.double = double
        self.one_big_call = one_big_call

    def _begin(self) -> int:
        part = current_task().metadata["subtask_id"]
        self.runs.append(part)
        return int(part.rpartition(":")[2])

    async def _pass_gate(self, index: int) -> None:
        if self.gate is not None and (self.gated is None or index in self.gated):
            await self.gate.wait()

    async def _make(self, count: int) -> list[Name]:
        index = self._begin()
        self.sizes.append(count)
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        try:
            await self._pass_gate(index)
            await asyncio.sleep(0)
            if index in self.fails:
                raise ValueError(f"no part {index}")
            if self.repeats:
                return [Name(letters(number)) for number in range(count)]
            first = self.made
            self.made += count
            return [Name(letters(number)) for number in range(first, first + count)]
        finally:
            self.live -= 1
