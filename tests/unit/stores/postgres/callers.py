"""Connections of the caller with an open transaction, through every driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session


class Caller:
    """A connection of the caller, in a transaction."""

    def __init__(self, connection: Any, run: Callable[[str], Any], commit: Any, rollback: Any) -> None:
        self.connection = connection
        self._run = run
        self._commit = commit
        self._rollback = rollback

    async def run(self, query: str) -> None:
        await _maybe(self._run(query))

    async def commit(self) -> None:
        await _maybe(self._commit())

    async def rollback(self) -> None:
        await _maybe(self._rollback())


async def _maybe(answer: Any) -> Any:
    return (await answer) if isinstance(answer, Awaitable) else answer


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


@asynccontextmanager
async def by_psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


def _by_engine(url: str) -> Any:
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def _by_async_engine(url: str) -> Any:
    return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))


@asynccontextmanager
async def by_sqlalchemy(url: str) -> AsyncIterator[Caller]:
    engine = _by_engine(url)
    with engine.connect() as connection:
        yield Caller(connection, lambda query: connection.execute(text(query)), connection.commit, connection.rollback)
    engine.dispose()


@asynccontextmanager
async def by_session(url: str) -> AsyncIterator[Caller]:
    engine = _by_engine(url)
    with Session(engine) as session:
        yield Caller(session, lambda query: session.execute(text(query)), session.commit, session.rollback)
    engine.dispose()


@asynccontextmanager
async def by_sqlalchemy_async(url: str) -> AsyncIterator[Caller]:
    engine = _by_async_engine(url)
    async with engine.connect() as connection:
        yield Caller(connection, lambda query: connection.execute(text(query)), connection.commit, connection.rollback)
    await engine.dispose()


@asynccontextmanager
async def by_async_session(url: str) -> AsyncIterator[Caller]:
    engine = _by_async_engine(url)
    async with AsyncSession(engine) as session:
        yield Caller(session, lambda query: session.execute(text(query)), session.commit, session.rollback)
    await engine.dispose()


SYNC = (by_psycopg, by_sqlalchemy, by_session)
DRIVERS = (by_asyncpg, by_asyncpg_pool, by_psycopg_async, by_sqlalchemy_async, by_async_session, *SYNC)
