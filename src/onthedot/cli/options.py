"""Options that many commands share: the store and the app, JSON output, filters of tasks."""

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

_TIME_AGO = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d|w)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STATES = [state.value for state in TaskState]
_CONDITION = re.compile(r"([^=]*[^=:])(:?=)(.*)", re.DOTALL)


@dataclass
class GlobalOptions:
    """The shared options, whether they were given before the command or after it."""

    store: str | None = None
    module: str | None = None  # -A
    app_name: str | None = None
    json: bool = False
    utc: bool = False


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    options = ctx.ensure_object(GlobalOptions)
    if value not in (None, False):
        assert param.name is not None
        setattr(options, param.name, value)


def _name(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    try:
        _remember(ctx, param, value and check_name(value, "name of the app"))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_SHARED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "store": (("--store",), {"metavar": "URL", "help": "The store. [ONTHEDOT_STORE, sqlite:///onthedot.db]"}),
    "name": (
        ("-n", "--app-name"),
        {"envvar": "ONTHEDOT_APP_NAME", "callback": _name, "help": "The app in that store. [the only one there is]"},
    ),
    "app": (
        ("-A", "--app", "module"),
        {"metavar": "MODULE:APP", "envvar": "ONTHEDOT_APP", "help": "Your app; it defines store and name."},
    ),
    "json": (("--json",), {"is_flag": True, "is_eager": True, "envvar": "ONTHEDOT_JSON", "help": "Print JSON."}),
    "utc": (("--utc",), {"is_flag": True, "envvar": "ONTHEDOT_UTC", "help": "Show times in UTC. [local time]"}),
}


def shared(*names: str) -> Callable[[F], F]:
    """Add these options; their values go to the `GlobalOptions` of the context."""

    def decorate(command: F) -> F:
        for name in reversed(names):
            flags, own = _SHARED[name]
            attributes: dict[str, Any] = {"callback": _remember, "expose_value": False, "allow_from_autoenv": False}
            command = click.option(*flags, **attributes | own)(command)
        return command

    return decorate


def store_command(name: str | None = None) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command that works on a store: it has the shared options, and gets the `GlobalOptions` first."""

    def decorate(function: Callable[..., None]) -> click.Command:
        command = click.command(name)(click.pass_obj(function))
        command.params += click.command()(shared(*_SHARED)(lambda: None)).params
        return command

    return decorate


def time_ago(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    """Parse a time ago ("30s", "1h", "7d") or a moment in ISO 8601."""
    if value is None:
        return None
    if found := _TIME_AGO.fullmatch(value.strip()):
        return datetime.now(UTC) - timedelta(seconds=float(found[1]) * _UNITS[found[2]])
    return moment(value, "neither a time ago (30s, 10m, 1h, 7d) nor")


def duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Parse a time ("90s", "24h", "7d") as seconds."""
    if value is None:
        return None
    found = _TIME_AGO.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no time; write 90s, 10m, 24h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse a time as seconds; a number without a unit is seconds, too."""
    if value is None or not _NUMBER.fullmatch(value.strip()):
        return duration(ctx, param, value)
    return float(value)


def optional_moment(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    """Parse a moment in ISO 8601."""
    return None if value is None else moment(value)


def moment(value: str, problem: str = "not") -> datetime:
    """Parse ISO 8601; without a zone it is local time."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is {problem} a moment (2026-11-16T09:00)") from None
    return found.astimezone() if found.tzinfo is None else found


def conditions(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, object] | None:
    """Parse ``--where``: `path=text`, which also matches the number written so, or `path:=JSON`."""
    found: dict[str, object] = {}
    for text in given:
        condition = _CONDITION.fullmatch(text)
        if condition is None:
            raise click.BadParameter(
                f"{text!r}: write customer=acme or order.id=17; order.id:=17 is the number, and no text"
            )
        path, operator, value = condition.groups()
        if path in found:
            raise click.BadParameter(f"{path} is given twice")
        try:
            found[path] = value if operator == "=" else msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise click.BadParameter(f"{text!r} is not JSON after := ({error})") from None
    return found or None


def filters(command: F) -> F:
    """Add --source --state --error --group --where --tag --since --until."""
    for option in (
        click.option("--until", callback=time_ago, metavar="WHEN", help="Added before: 30m, 1h, 7d ago, or a moment."),
        click.option("--since", callback=time_ago, metavar="WHEN", help="Added since: 30m, 1h, 7d, or a moment."),
        click.option("--tag", help="With this tag."),
        click.option("--where", multiple=True, callback=conditions, metavar="K=V",
                     help="With this argument or metadata: customer=acme, order.id=17; may be repeated."),
        click.option("--group", help="Failed with this error: a group that `onthedot failed` shows."),
        click.option("--error", help="Part of the error's type or message."),
        click.option("--state", type=click.Choice(_STATES), metavar="STATE",
                     help=f"In this state: {', '.join(_STATES[:-1])} or {_STATES[-1]}."),
        click.option("--source", help="Of this source."),
    ):  # fmt: skip
        command = option(command)
    return command


def task_filter(given: dict[str, Any]) -> TaskFilter:
    return cast(TaskFilter, {name: value for name, value in given.items() if value is not None})
