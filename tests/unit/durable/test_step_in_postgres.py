"""``ctx.step_in`` on Postgres: through an async and a sync connection of the user's."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import psycopg
import pytest

from onthedot import App, Retry, current_task
from tests.support.services.postgres import Service


@pytest.fixture
def app(postgres: Service) -> Iterator[App]:
    with postgres.database() as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE sale (number integer)")
        yield App("shop", store=url)


def sales(app: App) -> list[int]:
    with psycopg.connect(app.runtime.url) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM sale")]


async def test_committed_step_is_not_repeated_and_a_rolled_back_one_is(app: App) -> None:
    @app.task(max_retries=2)
    async def order() -> int:
        ctx = current_task()
        connection = await asyncpg.connect(app.runtime.url)

        async def sell(number: int) -> int:
            await connection.execute("INSERT INTO sale VALUES ($1)", number)
            return number

        try:
            async with connection.transaction():
                first = await ctx.step_in(connection, "first", sell, 1)
            if ctx.attempt == 1:
                raise Retry(after=0)
            async with connection.transaction():
                second = await ctx.step_in(connection, "second", sell, 2)
                if ctx.attempt == 2:
                    raise Retry(after=0)
        finally:
            await connection.close()
        return first + second

    async with app.running():
        assert await (await order.enqueue()).result(10) == 3
    assert sales(app) == [1, 2]


async def test_step_of_a_sync_task_is_saved_with_its_transaction(app: App) -> None:
    @app.task(max_retries=1)
    def order() -> int:
        ctx = current_task()
        with psycopg.connect(app.runtime.url) as connection:

            def sell(number: int) -> int:
                connection.execute("INSERT INTO sale VALUES (%s)", (number,))
                return number

            number = ctx.sync.step_in(connection, "sell", sell, 7)
        if ctx.attempt == 1:
            raise Retry(after=0)
        return number

    async with app.running():
        assert await (await order.enqueue()).result(10) == 7
    assert sales(app) == [7]
