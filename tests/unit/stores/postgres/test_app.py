"""An app on Postgres: results, schedules, transactions of the caller, commands, a fork."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import psycopg
import pytest
from click.testing import CliRunner

from onthedot import App, AtMost, StoreRefused, TaskNotFound, current_task
from onthedot.cli import main
from tests.support.services.postgres import Service
from tests.support.waits import SOON, wait_until

SALES = "SELECT count(*) FROM sale"


@pytest.fixture
def app(postgres: Service, named: str) -> Iterator[App[None]]:
    app: App[None] = App(named, store=postgres.url, poll_interval=60)
    postgres.ask("CREATE TABLE sale (number integer)")
    with app.background():
        yield app
    app.shutdown()
    postgres.ask("DROP TABLE sale")


@asynccontextmanager
async def connected(postgres: Service) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres.url)
    try:
        yield connection
    finally:
        await connection.close()


def test_async_and_sync_tasks_are_retried_and_return_results(app: App[None]) -> None:
    @app.task(max_retries=1, backoff=[0])
    async def shaky(number: int) -> int:
        if current_task().attempt == 1:
            raise OSError("not yet")
        return number

    @app.task
    def plain(number: int) -> int:
        return number + 1

    assert shaky.delay(7).result(timeout=20) == 7
    assert [handle.result(timeout=20) for handle in plain.delay_many([{"number": n} for n in range(30)])] == [
        *range(1, 31)
    ]


def test_a_delay_is_measured_by_the_clock_of_the_server(app: App[None]) -> None:
    @app.task
    async def later() -> None: ...

    handle = later.options(after=0.3).delay()
    handle.result(timeout=20)
    info = handle.info()
    assert info.started_at is not None
    assert info.added_at is not None
    assert info.started_at - info.added_at >= timedelta(seconds=0.3)


def test_a_schedule_fires(postgres: Service, named: str) -> None:
    app: App[None] = App(named, store=postgres.url)
    ran: list[int] = []

    @app.schedule(timedelta(seconds=1))
    async def tick() -> None:
        ran.append(1)

    with app.background():
        wait_until(lambda: len(ran) >= 2, timeout=20)
    app.shutdown()


async def test_a_task_is_added_with_the_commit_of_the_callers_transaction(app: App[None], postgres: Service) -> None:
    @app.task
    async def receipt(number: int) -> str:
        return f"receipt {number}"

    async with connected(postgres) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO sale VALUES (1)")
        gone = await receipt.options(connection=connection).enqueue(1)
        await transaction.rollback()
        with pytest.raises(TaskNotFound):
            await gone.result(timeout=SOON)
        async with connection.transaction():
            await connection.execute("INSERT INTO sale VALUES (2)")
            one = await receipt.options(connection=connection).enqueue(2)
            many = await receipt.options(connection=connection).enqueue_many([{"number": 3}, {"number": 4}])
        results = [await handle.result(timeout=20) for handle in (one, *many)]
        assert results == ["receipt 2", "receipt 3", "receipt 4"]
        assert await connection.fetchval(SALES) == 1


def test_sync_code_adds_tasks_in_its_transaction(app: App[None], postgres: Service) -> None:
    @app.task
    async def receipt(number: int) -> str:
        return f"receipt {number}"

    with psycopg.connect(postgres.url) as connection:
        connection.execute("INSERT INTO sale VALUES (1)")
        handle = receipt.options(connection=connection).delay(1)
    assert handle.result(timeout=20) == "receipt 1"
    with pytest.raises(StoreRefused, match="joined through"):
        receipt.options(connection="shop").delay(1)


def test_an_unopened_app_adds_tasks_in_a_transaction(app: App[None], postgres: Service, named: str) -> None:
    @app.task
    async def receipt(number: int) -> int:
        return number

    other: App[None] = App(named, store=postgres.url)
    with psycopg.connect(postgres.url) as connection:
        handle = other.named("receipt").options(connection=connection).delay(number=5)
    assert handle.result(timeout=20) == 5
    other.shutdown()


def test_complete_settles_in_the_transaction_of_the_task(app: App[None], postgres: Service) -> None:
    noted: list[int] = []

    @app.task(max_retries=1, backoff=[0])
    async def sell(number: int) -> int:
        context = current_task()
        async with connected(postgres) as connection:
            async with connection.transaction():
                await connection.execute("INSERT INTO sale VALUES ($1)", number)
                context.spawn(note.s(number))
                await context.complete(number * 10, connection=connection)
                if context.attempt == 1:
                    raise OSError("before the commit: effect and settlement are rolled back")
            raise OSError("after the commit: the task has succeeded")

    @app.task
    async def note(number: int) -> None:
        noted.append(number)

    handle = sell.delay(7)
    assert handle.result(timeout=20) == 70
    assert handle.info().attempt == 2
    assert postgres.ask(SALES) == [(1,)]
    wait_until(lambda: noted == [7])


def test_commands_work_on_postgres(app: App[None], postgres: Service, named: str) -> None:
    @app.task
    async def receipt(number: int) -> int:
        return number

    assert receipt.delay(1).result(timeout=20) == 1
    run = CliRunner()
    assert "CREATE FUNCTION turn_v1" in run.invoke(main, ["schema", "print", "--store", postgres.url]).output
    for verb in ("install", "check"):
        result = run.invoke(main, ["schema", verb, "--store", postgres.url])
        assert (result.exit_code, "as it should be" in result.output) == (0, True)
    listed = run.invoke(main, ["task", "list", "--store", postgres.url, "-n", named])
    assert (listed.exit_code, "receipt" in listed.output) == (0, True)
    unreachable = run.invoke(main, ["schema", "check", "--store", "postgresql://127.0.0.1:1/shop"])
    assert (unreachable.exit_code, "127.0.0.1:1" in unreachable.output) == (3, True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_opens_its_own_connections(app: App[None], postgres: Service, named: str) -> None:
    @app.task
    async def receipt(number: int) -> int:
        return number

    assert receipt.delay(1).result(timeout=20) == 1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # like the forked worker of a web server
        try:
            os.write(writer, str(receipt.delay(2).result(timeout=20)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"2"
    os.close(reader)
    assert receipt.delay(3).result(timeout=20) == 3


async def test_two_event_loops_of_one_process_have_their_own_connections(app: App[None]) -> None:
    """The worker runs on its own thread, the callers on another event loop."""

    @app.task
    async def double(number: int) -> int:
        return number * 2

    async with app:
        handles = await asyncio.gather(*(double.enqueue(number) for number in range(20)))
        assert [await handle.result(timeout=20) for handle in handles] == [number * 2 for number in range(20)]


async def test_task_added_by_name_in_a_transaction_gets_its_lane(postgres: Service, named: str) -> None:
    app: App[None] = App(named, store=postgres.url)

    @app.task(limits=[AtMost(1, by="customer")])
    async def bill(customer: str) -> None: ...

    async with app.running():
        await app.pause("bill")
        adder: App[None] = App(named, store=postgres.url)
        async with adder, connected(postgres) as connection, connection.transaction():
            joined = adder.named("bill").options(connection=connection)
            one = await joined.enqueue(customer="acme")
            many = await joined.enqueue_many([{"customer": "acme"}, {"customer": "bolt"}])
        lanes = [(await app.get(handle.uuid)).lane for handle in (one, *many)]
        assert lanes == ["bill/acme", "bill/acme", "bill/bolt"]
