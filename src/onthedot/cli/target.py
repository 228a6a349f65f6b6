"""Where the tasks are: the store behind the options, opened for one question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from onthedot.cli.options import CliError, GlobalOptions
from onthedot.clock.system import SystemClock
from onthedot.model.uuid7 import new_uuid
from onthedot.operations import Operations
from onthedot.operations.limits import CodeDefinitions
from onthedot.runtime.settings import store_url
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.stores import connect
from onthedot.stores.schemes import apps_in, check_schema, file_of, is_postgres

T = TypeVar("T")


def with_operations(said: GlobalOptions, work: Callable[[Operations], Awaitable[T]]) -> T:
    """Opens the store, asks, closes it. A file that is not there is not made by looking."""
    url, name = target(said)  # which may ask a server, on a loop of its own
    check_there(url, name)

    async def asking() -> T:
        store = connect(url, SystemClock(), name)
        await store.open()
        try:
            return await work(Operations(store, new_uuid(), code=CodeDefinitions(plans=_plans(said))))
        finally:
            await store.close()

    return asyncio.run(asking())


def check_there(url: str, name: str | None = None) -> None:
    """What only looks makes nothing: no file, no tables, no app."""
    if url.startswith("memory:"):
        raise CliError("memory:// lives inside one process: there is nothing to see from another; name a --store")
    path = file_of(url)
    if path is None:
        _check_server(url, name)
        return
    if not path.exists():
        other = "".join(f"; here is {each}: --store sqlite:///{each}" for each in _beside(path))
        words = f"there is no file {path.absolute()}; a worker of your app makes it, or name a --store"
        raise CliError(words + other, 3)
    if name is None:
        return
    ok, told = check_schema(path)
    if not ok:
        raise CliError(told, 3)
    if name == "":
        raise CliError(f"nobody has added anything to {path} yet", 3)
    if name not in (apps := apps_in(path)):
        raise CliError(f"{path} has nothing of an app {name!r}; it has: {', '.join(apps) or 'none yet'}", 3)


def _check_server(url: str, name: str | None) -> None:
    if name is not None and is_postgres(url):
        ok, told = check_schema(url)
        if not ok:
            raise CliError(told, 3)
    if name == "":
        raise CliError(f"nobody has added anything to {shown(url)} yet", 3)


def _beside(path: Path) -> list[Path]:
    """The only other file of ours in that folder: perhaps it is the one that is meant."""
    found = [each for each in path.parent.glob("*.db") if apps_in(each)]
    return found if len(found) == 1 else []


def target(said: GlobalOptions, *, named: bool = True) -> tuple[str, str]:
    """URL of the store and name of the app. User code is imported only if -A says so."""
    if said.module is not None:
        from onthedot.supervisor.app_loader import load_app

        app = load_app(said.module)
        return store_url(said.store if said.store is not None else app._runtime.url), app.name
    url = store_url(said.store)
    return url, said.app_name or (_only_app(url) if named else "")


def _plans(said: GlobalOptions) -> Mapping[str, ScheduleDefinition]:
    """With -A: rules of the user's own can be computed here."""
    if said.module is None:
        return {}
    from onthedot.supervisor.app_loader import load_app

    runtime = load_app(said.module)._runtime
    for module in runtime.include:
        import_module(module)
    return runtime.schedules


def _only_app(url: str) -> str:
    """Whose tasks are in a store that is one app's needs no saying."""
    path = file_of(url)
    if url.startswith("memory:") or (path is not None and not path.exists()):
        return ""
    names = apps_in(path or url)
    if len(names) > 1:
        raise CliError(f"{path or shown(url)} has tasks of several apps: {', '.join(names)}; say which by -n")
    return names[0] if names else ""  # nobody's yet


def shown(url: str) -> str:
    """Without its password.

    >>> shown("redis://:secret@cache:6379/0"), shown("sqlite:///shop.db")
    ('redis://…@cache:6379/0', 'sqlite:///shop.db')
    """
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://…@{tail}" if at else url
