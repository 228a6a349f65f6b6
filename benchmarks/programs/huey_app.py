"""Huey on Redis, or on SQLite with a sync for every commit; our worker syncs in the background (ADR 14)."""

from __future__ import annotations

from typing import Any

from huey import RedisHuey, SqliteHuey

from benchmarks.programs.stopwatch import COUNT, STORE, tick

huey: Any
if STORE.startswith("redis:"):
    huey = RedisHuey("bench", url=STORE)
else:
    huey = SqliteHuey("bench", filename=STORE.removeprefix("sqlite:///"), fsync=True)


@huey.task()  # type: ignore[untyped-decorator]
def counted() -> None:
    tick()


if __name__ == "__main__":
    from benchmarks.programs import huey_app  # noqa: PLW0406 - the task has the name that the consumer imports

    for _ in range(COUNT):
        huey_app.counted()
