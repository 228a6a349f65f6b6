"""Empty stores of each kind, for the measures of flows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from benchmarks import postgres, redis
from benchmarks.sqlite import folder

NewStore = Callable[[], str]
_numbers = count()


@contextmanager
def memory_stores() -> Iterator[NewStore]:
    yield lambda: "memory://"


@contextmanager
def sqlite_stores() -> Iterator[NewStore]:
    with folder() as at:
        yield lambda: f"sqlite:///{at}/{next(_numbers)}.db"


@contextmanager
def redis_stores() -> Iterator[NewStore]:
    """One server, which is emptied."""
    with redis.server() as url:

        def emptied() -> str:
            redis.flush(url)
            return url

        yield emptied


@contextmanager
def postgres_stores() -> Iterator[NewStore]:
    """A database for each on one server, so that no run meets the rows of another."""
    with postgres.server() as url:

        def new_database() -> str:
            name = f"bench_{next(_numbers)}"
            asyncio.run(postgres.execute(url, f"CREATE DATABASE {name}"))
            return url.rpartition("/")[0] + f"/{name}"

        yield new_database


STORES = {"memory": memory_stores, "SQLite": sqlite_stores, "Redis": redis_stores, "Postgres": postgres_stores}
