"""Sync connections of a caller with an open transaction, to an SQLite file or a Postgres database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, NamedTuple, TypeAlias

import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker


class SyncCaller(NamedTuple):
    """A connection of the caller, in a transaction."""

    connection: Any
    run: Callable[[str], Any]
    commit: Callable[[], None]
    rollback: Callable[[], None]


Way: TypeAlias = Callable[[str], AbstractContextManager[SyncCaller]]


@contextmanager
def by_driver(url: str) -> Iterator[SyncCaller]:
    if url.startswith("sqlite:"):
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(url)
    with closing(connection):
        yield SyncCaller(connection, connection.execute, connection.commit, connection.rollback)


@contextmanager
def by_connection(url: str) -> Iterator[SyncCaller]:
    with _engine(url) as engine, engine.connect() as connection:
        yield _of_sqlalchemy(connection)


@contextmanager
def by_session(url: str) -> Iterator[SyncCaller]:
    with _engine(url) as engine, Session(engine) as session:
        yield _of_sqlalchemy(session)


@contextmanager
def by_scoped_session(url: str) -> Iterator[SyncCaller]:
    with _engine(url) as engine:
        session = scoped_session(sessionmaker(engine))
        try:
            yield _of_sqlalchemy(session)
        finally:
            session.remove()


@contextmanager
def _engine(url: str) -> Iterator[Any]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        yield engine
    finally:
        engine.dispose()


def _of_sqlalchemy(connection: Any) -> SyncCaller:
    return SyncCaller(connection, lambda query: connection.execute(text(query)), connection.commit, connection.rollback)


WAYS: tuple[Way, ...] = (by_driver, by_connection, by_session, by_scoped_session)
