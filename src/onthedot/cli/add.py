"""``onthedot add``: a task by name, with or without its code."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, cast, get_type_hints

import click
import msgspec

from onthedot import App, TaskError
from onthedot.api.functions import Enqueuer
from onthedot.cli.options import CliError, GlobalOptions, moment, shared
from onthedot.cli.output import clean, write_json
from onthedot.cli.target import shown, target
from onthedot.errors import meant
from onthedot.model.options import AddOptions
from onthedot.runtime.settings import store_url
from onthedot.supervisor.app_loader import load_app

_ARGUMENT = re.compile(r"([A-Za-z_]\w*)(:?=)(.*)", re.DOTALL)


@click.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[K=V | K:=JSON]...")
@shared("store", "name", "app", "json")
@click.option("--wait", is_flag=True, help="Wait for its end and print the result.")
@click.option("--timeout", type=click.FloatRange(0), help="Seconds to --wait at most; then exit code 124.")
@click.option("--after", type=click.FloatRange(0), help="In so many seconds.")
@click.option("--at", help="At this moment: 2026-11-16T09:00, with a zone or in local time.")
@click.option("--priority", help="1 to 10 (10 first), low, normal or high.")
@click.option("--unique", metavar="KEY", help="Nothing is added while another with this key is alive.")
@click.pass_obj
def add(
    said: GlobalOptions, /, name: str, arguments: tuple[str, ...], wait: bool, timeout: float | None, **more: Any
) -> None:  # fmt: skip
    """Add a task and print its uuid.

    K=V passes a string, K:=JSON anything else. With -A your code is imported and the arguments are checked, and "17"
    becomes a number where the signature says so; without, whoever runs it checks them.
    """
    app, is_there = _app(said)
    try:
        task, given = _call(app, name, arguments, _options(more), checked=said.module is not None)
        if not is_there:  # after what is typed wrong: that would be wrong for every app
            raise CliError(f"whose task? {shown(str(app._runtime.url))} has no app yet; say -A app.py, or -n NAME")
        handle = task.delay(**given)
        if wait:
            _warn_if_nobody(app, name)
        result = handle.result(timeout) if wait else None
    except TimeoutError as error:
        raise CliError(str(error), 124) from None
    except TaskError as error:
        raise CliError(clean(str(error)), 1) from None
    finally:
        app._portal.close()
    if said.json:
        write_json({"uuid": handle.uuid, "added": handle.added} | ({"result": result} if wait else {}))
    elif wait:
        click.echo(result if isinstance(result, str) else msgspec.json.encode(result, enc_hook=str).decode())
    else:
        click.echo(handle.uuid)
        if not handle.added:
            click.echo("nothing was added: that one is alive already", err=True)


def _warn_if_nobody(app: App[Any], name: str) -> None:
    """Who waits for what nobody can run would wait in silence, and for ever."""
    workers = app._portal.run_sync(lambda client: client.operations.present())
    known = {source for worker in workers for source in worker.sources}
    if name not in known:
        there = meant(name, known) if workers else "; there is none at all: onthedot worker APP starts one"
        click.echo(f"waiting, but no live worker knows {name!r}{there}", err=True)


def _app(said: GlobalOptions) -> tuple[App[Any], bool]:
    """False: nobody has said whose task it is, and the store does not know either."""
    name = ""
    if said.module is None:
        url, name = target(said)
        app: App[Any] = App(name or "onthedot", store=url)
    else:
        app = load_app(said.module)
        if said.store is not None:
            app._runtime.url = store_url(said.store)
    if (app._runtime.url or store_url(None)).startswith("memory:"):
        raise CliError("memory:// lives inside one process: what is added here would be gone at once; name a --store")
    return app, bool(said.module or name)


def _options(given: dict[str, Any]) -> AddOptions:
    if given["at"] is not None:
        given["at"] = moment(given["at"])
    priority = given["priority"]
    if priority is not None and priority.isdigit():
        given["priority"] = int(priority)
    return cast(AddOptions, {key: value for key, value in given.items() if value is not None})


def _call(
    app: App[Any], name: str, arguments: tuple[str, ...], options: AddOptions, *, checked: bool
) -> tuple[Enqueuer[..., Any], dict[str, Any]]:
    try:
        task: Enqueuer[..., Any] = app.named(name).options(**options)
    except (ValueError, TypeError) as error:
        raise CliError(str(error)) from None
    source = app._runtime.sources.get(name)
    if checked and source is None:
        raise CliError(f"app {app.name!r} has no task {name!r}{meant(name, app._runtime.sources.known)}")
    function = getattr(source, "function", None)
    return task, _read(arguments, {} if function is None else get_type_hints(function))


def _read(arguments: tuple[str, ...], hints: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for text in arguments:
        found = _ARGUMENT.fullmatch(text)
        if found is None:
            raise click.UsageError(f"{text!r} is no argument; write name=text or name:=json")
        key, how, value = found.groups()
        if key in given:
            raise click.UsageError(f"{key} is given twice")
        if how == "=":
            given[key] = _fitting(hints[key], value) if key in hints else value
            continue
        try:
            given[key] = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise click.UsageError(f"{text!r} is not JSON after := ({error})") from None
    return given


def _fitting(hint: Any, text: str) -> Any:
    """What the signature makes of a text: "17" is a number where one is wanted."""
    for strict in (True, False):
        with suppress(msgspec.ValidationError, TypeError):
            return msgspec.convert(text, hint, strict=strict)
    with suppress(msgspec.ValidationError, msgspec.DecodeError, TypeError):
        return msgspec.json.decode(text, type=hint)
    return text  # it is refused in a moment, with the words of the signature
