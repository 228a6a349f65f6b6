"""``onthedot web``: the HTTP API and the page of a store, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from onthedot.api.app import App
from onthedot.cli.options import GlobalOptions, store_command
from onthedot.cli.outbox import event_settings
from onthedot.cli.target import check_exists, target
from onthedot.errors import DeclarationError
from onthedot.events import Events
from onthedot.observability import log_format
from onthedot.observability.log_format import print_line
from onthedot.operations.humanize import suffix
from onthedot.runtime.settings import version
from onthedot.supervisor.app_loader import load_app_and_included
from onthedot.supervisor.exit_codes import ADDRESS, FAILED, CommandError
from onthedot.supervisor.health_port import parse_address
from onthedot.supervisor.worker_process import signal_handlers

if TYPE_CHECKING:
    from onthedot.web.saved_token import SavedToken  # it needs the extra `web`

NEEDS_EXTRA = "the page needs starlette and uvicorn: pip install 'onthedot[web]'"


def listen_address(_: click.Context, __: click.Parameter, value: str) -> tuple[str, int]:
    try:
        return parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@dataclass(frozen=True)
class WebOptions:
    """The options of the command."""

    listen: tuple[str, int]
    token_file: Path | None
    public_url: str
    prefix: str
    insecure: bool
    read_only: bool
    env: str
    access_log: bool
    trace_url: str
    metrics_sources: int
    log_format: Literal["console", "json"]
    bus: str | None
    outbox: str | None
    until_eof: bool


@store_command()
@click.option("--listen", callback=listen_address, metavar="[HOST]:PORT", default=":8123", show_default=True,
              help="The address that is served; without a host, this machine only.")  # fmt: skip
@click.option("--token-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="A file with the token of operators. [ONTHEDOT_WEB_TOKEN, else that of this folder]")  # fmt: skip
@click.option("--public-url", metavar="URL", default="", help="Where a proxy serves it: https://ops.example.com/tasks.")
@click.option("--prefix", metavar="PATH", default="", help="The path below which it is served. [that of --public-url]")
@click.option("--insecure", is_flag=True, help="Allow plain HTTP on a public address.")
@click.option("--read-only", is_flag=True, help="Nobody changes anything: all users are viewers.")
@click.option("--env", metavar="NAME", default="", help="A name that the page shows, such as production.")
@click.option("--access-log", is_flag=True, help="Log every request.")
@click.option("--bus", metavar="URL", envvar="ONTHEDOT_BUS",
              help="Where dead letters are: kafka://…, or store. [ONTHEDOT_BUS, the store]")  # fmt: skip
@click.option("--trace-url", metavar="URL", default="", help="Where traces are: https://…/{trace_id}.")
@click.option("--until-eof", is_flag=True, hidden=True, help="Stop when stdin ends, as it does with its supervisor.")
@click.option("--outbox", metavar="URL", hidden=True, help="The database of the events, if it is another.")
@click.option("--metrics-sources", type=click.IntRange(1), metavar="N", default=100, show_default=True,
              help="Sources that /metrics keeps apart; the others are source=\"…\".")  # fmt: skip
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console", show_default=True,
              help="Of the log, which goes to stderr.")  # fmt: skip
def web(options: GlobalOptions, **given: Any) -> None:
    """Serve the HTTP API and the page of a store; no code of yours is needed.

    Users come from ONTHEDOT_WEB_TOKEN (an operator), ONTHEDOT_WEB_VIEWER_TOKEN (a viewer) and ONTHEDOT_WEB_USERS
    (name:role:sha256 of a token, separated by commas). -A adds custom schedule rules. Without -n and -A all apps of the
    store are shown.
    """
    url, name = target(options, several=True)
    check_exists(url, name)
    asyncio.run(_serve(options, url, name, WebOptions(**given)))


async def _serve(options: GlobalOptions, url: str, name: str, given: WebOptions) -> None:
    try:
        from onthedot.web.app_site import app_site
        from onthedot.web.context import AppFacts
        from onthedot.web.saved_token import credentials_of
        from onthedot.web.server import address_of, listen, serving
        from onthedot.web.settings import WebSettings, token_credential
        from onthedot.web.store_apps import StoreApps
    except ImportError as error:
        raise CommandError(f"{NEEDS_EXTRA} ({error})", FAILED) from None

    named = given.token_file
    more = () if named is None else (token_credential("operator", "operator", read_token(named)),)
    credentials, token = credentials_of(Path.cwd(), os.environ, *more)
    host, port = given.listen
    settings = WebSettings(
        host=host,
        port=port,
        credentials=credentials,
        read_only=given.read_only,
        public_url=given.public_url,
        prefix=given.prefix,
        insecure=given.insecure,
        environment=given.env,
        access_log=given.access_log,
        trace_url=given.trace_url,
        metrics_sources=given.metrics_sources,
    )
    settings.check_bind()
    events = event_settings(options, bus=given.bus, outbox=given.outbox)
    app = _app(options, url, name, events)
    others = StoreApps(url, lambda other: App(other, store=url, events=events))
    shows_all = options.module is None and not options.app_name
    site = app_site(
        app, settings, AppFacts(name, url.partition(":")[0], version()), others=others if shows_all else None
    )
    log_format.configure(given.log_format, None, app.runtime.logs.root)
    stop = asyncio.Event()
    try:
        listener = listen(host, port)
    except DeclarationError as error:
        raise CommandError(str(error), ADDRESS) from None
    with (
        listener,
        signal_handlers(dict.fromkeys((signal.SIGTERM, signal.SIGINT), stop.set)),
    ):
        async with app, others, serving(site, listener):
            base = settings.public_url.rstrip("/") or f"http://{address_of(listener)}{settings.base_path}"
            if given.until_eof:  # the log of a service, which others read
                print_line(f"page {base}/{_place(token)}")
                await wait_for_eof(stop)
            else:
                print_line(f"page {base}/{suffix('?token=', token.text)}")
                await stop.wait()
    if not given.until_eof:
        print_line("stopped")


def _place(token: SavedToken) -> str:
    if not token.text:
        return ""
    if token.file is None:
        return " · nobody can sign in: no token can be saved; set ONTHEDOT_WEB_TOKEN"
    return f" · the token is in {token.file}"


async def wait_for_eof(stop: asyncio.Event) -> None:
    """Wait until stdin ends or `stop` is set: a supervisor that was killed sends no signal."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    waits = [asyncio.create_task(reader.read()), asyncio.create_task(stop.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await asyncio.wait(waits)
    transport.close()


def _app(options: GlobalOptions, url: str, name: str, events: Events) -> App[Any]:
    """The app behind -A, or one without code."""
    if options.module is None:
        return App(name, store=url, events=events)
    app = load_app_and_included(options.module)
    app.runtime.use(replace(app.runtime.config, url=url, events=events))
    return app


def read_token(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise DeclarationError(f"the token file {path} cannot be read: {error}") from None
