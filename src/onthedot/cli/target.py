"""The store and the app of a command, and operations on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import click

from onthedot.cli.options import GlobalOptions
from onthedot.clock.system import SystemClock
from onthedot.errors import StoreError
from onthedot.model.uuid7 import new_uuid
from onthedot.operations import Operations
from onthedot.operations.apps import present_apps
from onthedot.operations.audit import Actor, system_user
from onthedot.operations.limits import CodeDefinitions
from onthedot.runtime.settings import store_url
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.stores import connect
from onthedot.stores.contract import Store
from onthedot.stores.masked_url import masked
from onthedot.stores.schemes import apps_in, check_schema, file_of, file_url, has_schema
from onthedot.supervisor.exit_codes import STORE, CommandError

T = TypeVar("T")


def with_operations(options: GlobalOptions, work: Callable[[Operations], Awaitable[T]]) -> T:
    """Open the store, call `work`, close the store. A file that does not exist is not created."""
    url, name = target(options)  # may ask a server, on an event loop of its own
    check_exists(url, name)
    return asyncio.run(_run(connect(url, SystemClock(), name), _schedules(options), work))


def with_operations_or_code(options: GlobalOptions, work: Callable[[Operations], Awaitable[T]]) -> T:
    """As `with_operations`; if the store cannot be read, on an empty one, with what the code behind -A declares."""
    schedules = _schedules(options)
    try:
        return with_operations(options, work)
    except (CommandError, StoreError) as error:
        if options.module is None:
            raise
        click.echo(f"from the code alone: {error}", err=True)
    return asyncio.run(_run(connect("memory://", SystemClock(), "code"), schedules, work))


async def _run(
    store: Store, schedules: Mapping[str, ScheduleDefinition], work: Callable[[Operations], Awaitable[T]]
) -> T:
    await store.open()
    try:
        operations = Operations(store, new_uuid(), code=CodeDefinitions(schedules=schedules))
        return await work(operations.acting_as(Actor(system_user(), via="cli")))
    finally:
        await store.close()


def check_exists(url: str, name: str | None = None) -> None:
    """Refuse a store or app that does not exist: commands that read create no file, no table and no app."""
    if url.startswith("memory:"):
        raise CommandError("memory:// lives inside one process: there is nothing to see from another; name a --store")
    path = file_of(url)
    if path is None:
        _check_server(url, name)
        return
    if not path.exists():
        other = "".join(f"; here is {each}: --store sqlite:///{each}" for each in _other_files(path))
        text = f"there is no file {path.absolute()}; a worker of your app makes it, or name a --store"
        raise CommandError(text + other, STORE)
    if name is None:
        return
    _check_schema(url)
    if name == "":
        raise CommandError(f"nobody has added anything to {path} yet", STORE)
    if name not in (apps := apps_in(url)):
        message = f"{path} has nothing of an app {name!r}; it has: {', '.join(apps) or 'none yet'}"
        raise CommandError(message, STORE)


def _check_server(url: str, name: str | None) -> None:
    if name is not None and has_schema(url):
        _check_schema(url)
    if name == "":
        raise CommandError(f"nobody has added anything to {masked(url)} yet", STORE)


def _check_schema(url: str) -> None:
    ok, message = check_schema(url)
    if not ok:
        raise CommandError(message, STORE)


def _other_files(path: Path) -> list[Path]:
    """The only other database of onthedot in that folder, as a suggestion."""
    found: list[Path] = []
    with suppress(StoreError):  # one that cannot be read
        found = [each for each in path.parent.glob("*.db") if apps_in(file_url(each))]
    if len(found) > 1:
        return []
    return found


def target(options: GlobalOptions, *, named: bool = True, several: bool = False) -> tuple[str, str]:
    """Return the store's URL and the app's name, "" if the store has no app. Only -A imports user code.

    named: look for the name in the store if no option gives it. several: of more than one app, return the first.
    """
    if options.module is not None:
        from onthedot.supervisor.app_loader import load_app_and_included

        app = load_app_and_included(options.module)
        if options.store is not None:
            return store_url(options.store), app.name
        return store_url(app.runtime.url), app.name
    url = store_url(options.store)
    if options.app_name or not named:
        return url, options.app_name or ""
    return url, _only_app(url, several=several)


def _schedules(options: GlobalOptions) -> Mapping[str, ScheduleDefinition]:
    """The schedules of the app behind -A: their custom rules can be computed here."""
    if options.module is None:
        return {}
    from onthedot.supervisor.app_loader import load_app_and_included

    return load_app_and_included(options.module).runtime.schedules


def _only_app(url: str, *, several: bool) -> str:
    path = file_of(url)
    if url.startswith("memory:") or (path is not None and not path.exists()):
        return ""
    names = apps_in(url)
    if len(names) > 1:
        names = asyncio.run(present_apps(url, names))
    if len(names) > 1 and not several:
        where = path or masked(url)
        raise CommandError(f"{where} has several apps: {', '.join(names)}; say which by -n")
    return min(names, default="")
