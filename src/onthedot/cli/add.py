"""``onthedot add``: add a task by name, with or without its code."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast, get_type_hints

import click
import msgspec

from onthedot import App, TaskError, TaskHandle, TaskNotFound
from onthedot.api.functions import Enqueuer
from onthedot.cli.options import GlobalOptions, optional_moment, seconds, store_command
from onthedot.cli.output import visible, write_raw_json
from onthedot.cli.target import target
from onthedot.errors import StoreError, suggestion
from onthedot.model.options import AddOptions
from onthedot.model.uuid7 import new_uuid
from onthedot.observability.log_format import clean_lines
from onthedot.operations.humanize import short_id
from onthedot.runtime.settings import store_url
from onthedot.stores.masked_url import masked
from onthedot.stores.schemes import file_of
from onthedot.supervisor.app_loader import load_app_and_included
from onthedot.supervisor.exit_codes import FAILED, INTERRUPTED, TIMEOUT, CommandError

_ARGUMENT = re.compile(r"([A-Za-z_]\w*)(:?=)(.*)", re.DOTALL)


@store_command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[K=V | K:=JSON]...")
@click.option("--wait", is_flag=True, help="Wait for its end and print the result, after its uuid.")
@click.option("--timeout", callback=seconds, metavar="TIME", help="How long to --wait: 30s, 5m; then exit code 124.")
@click.option("--after", callback=seconds, metavar="TIME", help="Due in this time: 90s, 10m, 1h, 7d.")
@click.option(
    "--at",
    callback=optional_moment,
    metavar="MOMENT",
    help="Due at this moment: 2026-11-16T09:00, with a zone or in local time.",
)
@click.option("--priority", help="1 to 10 (10 first), low, normal or high.")
@click.option("--unique", metavar="KEY", help="Add nothing while another task with this key is alive.")
def add(
    options: GlobalOptions, /, name: str, arguments: tuple[str, ...], wait: bool, timeout: float | None, **more: Any
) -> None:  # fmt: skip
    """Add a task and print its uuid; with --wait, also its result.

    K=V passes a string, K:=JSON anything else. With -A your code is imported, the arguments are checked, and "17"
    becomes a number where the signature has one; without -A the worker checks them.
    """
    app, is_known = _app(options)
    uuid = new_uuid()  # known here, so that an interrupted call can name it
    try:
        task, given = _call(app, name, arguments, _add_options(more, uuid), checked=options.module is not None)
        if not is_known:  # after the checks of the arguments, which hold for every app
            raise CommandError(f"whose task? {_lack(app.runtime.url)}; say -A app.py, or -n NAME")
        handle = _stored(app, task, given, uuid)
        answer = {"uuid": handle.uuid, "added": handle.added}
        if not options.json:
            click.echo(handle.uuid)  # before the wait, which may be interrupted
            if not handle.added:
                click.echo("nothing was added: that one is alive already", err=True)
        try:
            _warn_without_worker(app, name, waits=wait)
            if wait:
                answer["result"] = _awaited(handle, timeout)
        except KeyboardInterrupt:
            raise _interrupted(handle.uuid, "is stored and goes on") from None
    finally:
        app.runtime.portal.close()
    if options.json:
        write_raw_json(answer)
    elif wait:
        result = answer["result"]
        shown = result if isinstance(result, str) else msgspec.json.encode(result, enc_hook=str).decode()
        click.echo(clean_lines(shown))


def _lack(url: str) -> str:
    path = file_of(url)
    if path is not None and not path.exists():
        return f"there is no file {path.absolute()} yet, so no app has anything there"
    return f"{masked(url)} has no app yet"


def _stored(app: App[Any], task: Enqueuer[..., Any], given: dict[str, Any], uuid: str) -> TaskHandle[Any]:
    try:
        return task.delay(**given)
    except KeyboardInterrupt:
        try:
            app.handle(uuid).state()
        except (StoreError, TaskNotFound, KeyboardInterrupt):
            raise _interrupted(uuid, "may be stored or not") from None
        raise _interrupted(uuid, "is stored and goes on") from None


def _interrupted(uuid: str, known: str) -> CommandError:
    return CommandError(f"interrupted: task {uuid} {known}; onthedot task show {short_id(uuid)}", INTERRUPTED, uuid)


def _awaited(handle: TaskHandle[Any], timeout: float | None) -> Any:
    try:
        return handle.result(timeout)
    except TimeoutError as error:
        raise CommandError(str(error), TIMEOUT, handle.uuid) from None
    except TaskError as error:
        raise CommandError(visible(str(error)), FAILED, handle.uuid) from None


def _warn_without_worker(app: App[Any], name: str, *, waits: bool) -> None:
    """A task that no worker knows would wait without a sign. Workers that are still to be started may know it."""
    workers = app.runtime.portal.run_sync(lambda client: client.operations.live_workers())
    known = {source for worker in workers for source in worker.sources}
    if name in known or not (workers or waits):
        return
    advice = suggestion(name, known)
    if not workers:
        advice = "; there is none at all: onthedot worker APP starts one"
    text = f"no live worker knows {name!r}{advice}"
    if waits:
        text = f"waiting, but {text}"
    click.echo(text, err=True)


def _app(options: GlobalOptions) -> tuple[App[Any], bool]:
    """Return the app; False: neither an option nor the store names it."""
    name = ""
    if options.module is None:
        url, name = target(options)
        app: App[Any] = App(name or "onthedot", store=url)
    else:
        app = load_app_and_included(options.module)
        if options.store is not None:
            app.runtime.use(replace(app.runtime.config, url=store_url(options.store)))
    if app.runtime.url.startswith("memory:"):
        raise CommandError(
            "memory:// lives inside one process: what is added here would be gone at once; name a --store"
        )
    return app, bool(options.module or name)


def _add_options(given: dict[str, Any], uuid: str) -> AddOptions:
    priority = given["priority"]
    if priority is not None and priority.isdigit():
        given["priority"] = int(priority)
    return cast(AddOptions, {"uuid": uuid} | {key: value for key, value in given.items() if value is not None})


def _call(
    app: App[Any], name: str, arguments: tuple[str, ...], options: AddOptions, *, checked: bool
) -> tuple[Enqueuer[..., Any], dict[str, Any]]:
    try:
        task: Enqueuer[..., Any] = app.named(name).options(**options)
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from None
    source = app.runtime.sources.get(name)
    if checked and source is None:
        raise CommandError(f"app {app.name!r} has no task {name!r}{suggestion(name, app.runtime.sources.known)}")
    hints: dict[str, Any] = {}
    if (function := getattr(source, "function", None)) is not None:
        hints = get_type_hints(function)
    return task, parse_arguments(arguments, hints)


def parse_arguments(arguments: tuple[str, ...], hints: dict[str, Any]) -> dict[str, Any]:
    """Values by name, from K=V and K:=JSON. hints: types of texts, by name."""
    given: dict[str, Any] = {}
    for text in arguments:
        found = _ARGUMENT.fullmatch(text)
        if found is None:
            raise click.UsageError(f"{text!r} is no argument; write name=text or name:=json")
        key, operator, value = found.groups()
        if key in given:
            raise click.UsageError(f"{key} is given twice")
        if operator == "=":
            given[key] = _convert(value, hints.get(key, str))
            continue
        try:
            given[key] = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise click.UsageError(f"{text!r} is not JSON after := ({error})") from None
    return given


def _convert(text: str, hint: Any) -> Any:
    """Convert a text to the type of its parameter, if possible."""
    for strict in (True, False):
        with suppress(msgspec.ValidationError, TypeError):
            return msgspec.convert(text, hint, strict=strict)
    with suppress(msgspec.ValidationError, msgspec.DecodeError, TypeError):
        return msgspec.json.decode(text, type=hint)
    return text  # the check against the signature refuses it
