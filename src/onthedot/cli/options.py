"""What many commands take: where the tasks are, how to say it, which tasks are meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import click
import msgspec

from onthedot.model.task import TaskState, check_name
from onthedot.operations.task_queries import TaskFilter

F = TypeVar("F", bound=Callable[..., Any])

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d|w)")
_VALUE = re.compile(r"([^=]*[^=:])(:?=)(.*)", re.DOTALL)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class CliError(click.ClickException):
    """Something a person can mend: told in one line."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        click.echo(f"onthedot: {self.message}", err=file is None, file=file)


@dataclass
class GlobalOptions:
    """The shared options, wherever they stood: before the command or after it."""

    store: str | None = None
    module: str | None = None  # -A
    app_name: str | None = None
    json: bool = False


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    said = ctx.ensure_object(GlobalOptions)
    if value not in (None, False):
        assert param.name is not None
        setattr(said, param.name, value)


def _name(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    try:
        _remember(ctx, param, value and check_name(value, "name of the app"))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_SHARED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "store": (("--store",), {"metavar": "URL", "help": "Where the tasks are. [ONTHEDOT_STORE, sqlite:///onthedot.db]"}),
    "name": (
        ("-n", "--app-name"),
        {
            "envvar": "ONTHEDOT_APP_NAME",
            "callback": _name,
            "help": "Whose tasks in that store. [the only app there is]",
        },
    ),
    "app": (
        ("-A", "--app", "module"),
        {"metavar": "MODULE:APP", "envvar": "ONTHEDOT_APP", "help": "Your app; then store and name are its own."},
    ),
    "json": (("--json",), {"is_flag": True, "is_eager": True, "envvar": "ONTHEDOT_JSON", "help": "For machines."}),
}


def shared(*names: str) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for name in reversed(names):
            flags, own = _SHARED[name]
            more: dict[str, Any] = {"callback": _remember, "expose_value": False, "allow_from_autoenv": False} | own
            command = click.option(*flags, **more)(command)
        return command

    return decorate


def span(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    """A time ago ("30s", "1h", "7d"), or a moment in ISO 8601."""
    if value is None:
        return None
    if found := _SPAN.fullmatch(value.strip()):
        return datetime.now(UTC) - timedelta(seconds=float(found[1]) * _UNITS[found[2]])
    return moment(value, "neither a time ago (30s, 10m, 1h, 7d) nor")


def moment(value: str, not_even: str = "not") -> datetime:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is {not_even} a moment (2026-11-16T09:00)") from None
    return found.astimezone() if found.tzinfo is None else found  # a person's clock shows local time


def values(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, object] | None:
    """Of ``--where``: a text, which also fits the number that is written so, or a JSON value."""
    found: dict[str, object] = {}
    for text in given:
        said = _VALUE.fullmatch(text)
        if said is None:
            raise click.BadParameter(
                f"{text!r}: write customer=acme or order.id=17; order.id:=17 is the number, and no text"
            )
        path, how, value = said.groups()
        if path in found:
            raise click.BadParameter(f"{path} is given twice")
        try:
            found[path] = value if how == "=" else msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise click.BadParameter(f"{text!r} is not JSON after := ({error})") from None
    return found or None


def filters(command: F) -> F:
    """--source --state --error --group --where --tag --since."""
    for option in (
        click.option("--since", callback=span, help="Added since: 30m, 1h, 7d, or a moment."),
        click.option("--tag", help="With this tag."),
        click.option("--where", multiple=True, callback=values, metavar="K=V",
                     help="With this argument or metadata: customer=acme, order.id=17; may be repeated."),
        click.option("--group", help="Failed with this error: a group that `onthedot failed` shows."),
        click.option("--error", help="A part of the error's type or message."),
        click.option("--state", type=click.Choice([state.value for state in TaskState]), help="Where they are now."),
        click.option("--source", help="What kind of task."),
    ):  # fmt: skip
        command = option(command)
    return command


def as_where(given: dict[str, Any]) -> TaskFilter:
    return cast(TaskFilter, {name: value for name, value in given.items() if value is not None})
