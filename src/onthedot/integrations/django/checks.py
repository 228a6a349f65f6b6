"""System checks of an entry of TASKS: what cannot work, and what to do."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core import checks
from django.db import connections

from onthedot.errors import OnTheDotError, suggestion
from onthedot.integrations.django.settings import OPTION_NAMES
from onthedot.integrations.django.sources import TaskSources
from onthedot.model.task import check_name
from onthedot.runtime.settings import store_url
from onthedot.stores.schemes import file_of

APP = "onthedot.integrations.django"
_SCHEMES = {"sqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"}  # of URLs, and Django's vendors


def check_entry(alias: str, sources: TaskSources) -> Iterator[Any]:
    """Yields Django's messages about one entry of TASKS."""
    where = f"TASKS[{alias!r}]"
    options = sources.params.get("OPTIONS", {})
    for name in options:
        if name not in OPTION_NAMES:
            yield _error("E001", f"{where} has no option {name!r}{suggestion(name, OPTION_NAMES)}")
    for queue in sources.queues:
        if not _is_name(queue):
            yield _error("E002", f"{where}: the queue {queue!r} is not a name: 1 to 100 of A-Z a-z 0-9 _ . : -")
    try:
        check_name(sources.options.NAME, "NAME")
        url = store_url(sources.options.STORE)
        _ = sources.app
    except (OnTheDotError, ValueError) as error:
        yield _error("E003", f"{where}: {error}")
        return
    if url.startswith("memory:"):
        yield checks.Warning(
            f"{where}: a store in memory is seen by this process only",
            hint="Name a file, Redis or Postgres in STORE; workers are other processes.",
            id="onthedot.W001",
        )
    yield from _check_join(where, sources, url)
    if not apps.is_installed(APP):
        yield checks.Warning(
            f"{where} uses {APP}, which is not installed",
            hint=f"Add {APP!r} to INSTALLED_APPS: it brings `manage.py onthedot`.",
            id="onthedot.W002",
        )


def _check_join(where: str, sources: TaskSources, url: str) -> Iterator[Any]:
    join = sources.options.JOIN
    if join is None:
        return
    if join not in connections:
        yield _error("E004", f"{where}: JOIN names {join!r}, and DATABASES has {', '.join(map(repr, connections))}")
        return
    connection = connections[join]
    if _SCHEMES.get(url.partition(":")[0]) != connection.vendor:
        yield _error(
            "E005",
            f"{where}: JOIN names {join!r}, a database of {connection.vendor}, and the store is another one",
            "JOIN needs STORE in the same database: SQLite or Postgres. Leave JOIN out for any other.",
        )
        return
    if connection.vendor == "postgresql" and not _uses_psycopg(connection):
        yield _error("E006", f"{where}: JOIN needs psycopg 3; {join!r} uses psycopg2", "pip install psycopg")
    file = file_of(url)
    name = connection.settings_dict["NAME"]
    if file is not None and Path(str(name)).resolve() != file.resolve():
        yield _error(
            "E007",
            f"{where}: JOIN names {join!r}, the file {name}, and the store is {file}",
            f"Write STORE: 'sqlite:///{Path(str(name)).resolve()}', or leave JOIN out.",
        )


def _uses_psycopg(connection: Any) -> bool:
    return int(connection.Database.__version__.partition(".")[0]) >= 3


def _is_name(queue: str) -> bool:
    try:
        check_name(queue, "queue")
    except ValueError:
        return False
    return len(queue) <= 100


def _error(number: str, text: str, hint: str | None = None) -> Any:
    return checks.Error(text, hint=hint, id=f"onthedot.{number}")
