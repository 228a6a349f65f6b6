"""``onthedot worker``: run tasks; list workers; let one finish and stop."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import click
from click.shell_completion import CompletionItem

from onthedot.api.app import App
from onthedot.cli.options import GlobalOptions, shared, store_command
from onthedot.cli.output import screen, short_ids, write, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import with_operations
from onthedot.model.component_names import COMPONENT_KINDS
from onthedot.operations.humanize import duration_text, plural, short_id
from onthedot.operations.workers import WorkerInfo
from onthedot.supervisor.app_loader import list_modules
from onthedot.supervisor.exit_codes import FAILED, CommandError
from onthedot.supervisor.health_port import parse_address
from onthedot.supervisor.messages import LaunchOptions
from onthedot.supervisor.service_manager import ServiceManager
from onthedot.supervisor.supervisor import Supervisor

_RELEASE = 6  # its column in the list of workers


def _address(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, int] | None:
    try:
        return None if value is None else parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _component_kinds(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in value.split(",") if kind.strip())
    for kind in kinds:
        if kind not in COMPONENT_KINDS:
            raise click.BadParameter(f"{kind!r} is not one of {', '.join(COMPONENT_KINDS)}")
    return kinds


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The other commands of this name, and files."""
    names = [CompletionItem(name) for name in ("drain", "list") if name.startswith(incomplete)]
    return [*names, CompletionItem(incomplete, type="file")]


@click.command()
@click.argument("app", required=False, shell_complete=_complete)
@shared("app", "store")
@click.option(
    "--processes", type=click.IntRange(1), metavar="N", default=1, show_default=True, help="Worker processes."
)
@click.option(
    "-c", "--concurrency", type=click.IntRange(1), metavar="N", help="Tasks at once per process. [as the app says]"
)
@click.option("--only", multiple=True, metavar="GLOB", help="Only these sources, as in 'email.*'; may be repeated.")
@click.option("--without", callback=_component_kinds, metavar="KIND,…", default="",
              help="Do not run these beside the tasks: relay, agents, callback.")  # fmt: skip
@click.option("--burst", is_flag=True, help="Stop when no task is due and none is running.")
@click.option("--stop-timeout", type=click.FloatRange(0), metavar="SECONDS", default=25.0, show_default=True,
              help="Seconds that running tasks have at the end; then they are requeued.")  # fmt: skip
@click.option("--stall-limit", type=click.FloatRange(0), metavar="SECONDS", default=900.0, show_default=True,
              help="Seconds for which tasks may block a process; then it is killed. 0: no limit.")  # fmt: skip
@click.option("--wait-for-store", type=click.FloatRange(0), metavar="SECONDS", default=60.0, show_default=True,
              help="Seconds to wait at the start for a store that cannot be reached. 0: do not wait.")  # fmt: skip
@click.option(
    "--health",
    callback=_address,
    metavar="[HOST]:PORT",
    help="Serve /healthz, /readyz, /metrics and /metrics/fleet there.",
)
@click.option("--web", "web", callback=_address, metavar="[HOST]:PORT",
              help="Serve the page there, with the settings ONTHEDOT_WEB_* of `onthedot web`.")  # fmt: skip
@click.option("--metrics-sources", type=click.IntRange(1), metavar="N", default=100, show_default=True,
              help="Sources that /metrics keeps apart; the others are source=\"…\".")  # fmt: skip
@click.option("--log-format", type=click.Choice(["console", "json"]), help="[as your code says, else console]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
              help="The least level that is logged. [as your code says, else info]")  # fmt: skip
@click.pass_obj
def worker(
    options: GlobalOptions,
    /,
    app: str | None,
    processes: int,
    health: tuple[str, int] | None,
    web: tuple[str, int] | None,
    metrics_sources: int,
    log_format: Literal["console", "json"] | None,
    **launch: Any,
) -> None:
    """Run the tasks of APP (app.py or module:app; or -A).

    SIGTERM or Ctrl+C: running tasks finish; twice: they are cancelled and requeued. SIGHUP: processes are replaced one
    after the other. A process that dies is started again.

    \b
    onthedot worker list   shows the workers of a store
    onthedot worker drain  lets one finish its tasks and stop
    """
    require_unix("worker")
    counted = 0 if health is None else metrics_sources  # nobody would read it
    config = LaunchOptions(
        app_of(options, app), options.store, log_format=log_format, metrics_sources=counted, **launch
    )
    manager = ServiceManager.from_environment(os.environ)
    sys.exit(asyncio.run(Supervisor(config, processes, health, manager, _web_address(web)).run()))


def _web_address(web: tuple[str, int] | None) -> str | None:
    """As the command `onthedot web` takes it."""
    if web is None:
        return None
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise CommandError("--web needs starlette and uvicorn: pip install 'onthedot[web]'", FAILED)
    host, port = web
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@click.command(hidden=True)
@click.argument("fd", type=int)
@click.argument("options")
def child(fd: int, options: str) -> None:
    from onthedot.supervisor.worker_main import run_child

    sys.exit(run_child(fd, options, _page_in_worker))


def _page_in_worker(app: App[Any], fd: int) -> AbstractAsyncContextManager[None]:
    from onthedot.cli.dev_page import page_in_worker

    return page_in_worker(app, fd)


def app_of(options: GlobalOptions, app: str | None) -> str:
    if app is not None and options.module is not None and app != options.module:
        raise click.UsageError(f"which app, {app} or -A {options.module}?")
    found = app or options.module
    if found is None:
        raise click.UsageError(f"which app? Name app.py, or -A module:app; {list_modules(Path.cwd())}")
    return found


def require_unix(command: str) -> None:
    if os.name != "posix":
        raise CommandError(f"`onthedot {command}` needs Linux or macOS; here write `app.run()` in a script", FAILED)


@store_command("list")
def list_workers(options: GlobalOptions) -> None:
    """Workers of this store."""
    workers = with_operations(options, lambda operations: operations.workers())
    if options.json:
        named = ("workers.*.concurrency", "workers.*.max_retries", "workers.*.agent_keep")
        write_json({"workers": workers}, names=named)
        return
    out = screen(utc=options.utc)
    rows = [
        [worker, each.host, str(each.pid), str(each.running), out.when(each.started), each.version or "-",
         each.release, *_figures(each), ", ".join(each.sources)]
        for worker, each in zip(short_ids([each.id for each in workers]), workers, strict=True)
    ]  # fmt: skip
    if rows:
        columns: list[Column | str] = [
            "ID", Column("HOST", least=8), number("PID"), number("RUNNING"), "SINCE", Column("VERSION", drop=2),
            Column("RELEASE", least=8, drop=1), number("DONE/MIN", drop=3), number("LAG", drop=4),
            number("MEMORY", drop=5), Column("SOURCES", least=16),
        ]  # fmt: skip
        if not any(each.release for each in workers):
            del columns[_RELEASE]
            for row in rows:
                del row[_RELEASE]
        out.table(columns, rows)
    else:
        click.echo("nobody works on this store; start one: onthedot worker app.py", err=True)


def _figures(worker: WorkerInfo) -> tuple[str, str, str]:
    """Speed, lag of the event loop and memory; a worker that has just started has not written them yet."""
    done = "-" if worker.done_per_minute is None else f"{worker.done_per_minute:,.0f}"
    lag = duration_text(None if worker.loop_lag is None else worker.loop_lag / 1000)
    memory = "-" if worker.rss is None else f"{worker.rss / 2**20:,.0f} MiB"
    return done, lag, memory


@store_command()
@click.argument("id", metavar="ID")
def drain(options: GlobalOptions, id: str) -> None:  # noqa: A002 - the name in the help
    """Let a worker of this host finish its tasks and stop; the last or first characters of its ID are enough.

    It takes no more tasks, and its supervisor does not start it again.
    """
    workers = with_operations(options, lambda operations: operations.workers())
    matching = [each for each in workers if each.id.startswith(id) or each.id.endswith(id)]
    if len(matching) != 1:
        ids = ", ".join(each.id for each in workers) or "none"
        number = "more than one" if matching else "no"
        raise CommandError(f"{number} worker {id}; there are: {ids}", FAILED)
    (found,) = matching
    _check_drainable(found)
    os.kill(found.pid, signal.SIGTERM)
    text = f"worker {short_id(found.id)} (pid {found.pid}) finishes {plural(found.running, 'task')} and stops"
    write(text, {"drained": found.id, "pid": found.pid}, json=options.json)


def _check_drainable(found: WorkerInfo) -> None:
    if found.host != platform.node():
        raise CommandError(f"worker {found.id} is on {found.host or 'an unknown host'}: run this there", FAILED)
    ps = subprocess.run(["ps", "-o", "args=", "-p", str(found.pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607 - ps is where the system has it
    command = ps.stdout.strip()
    if not command:
        raise CommandError(f"worker {found.id}: there is no process {found.pid} here any more", FAILED)
    if "onthedot _child" not in command:
        raise CommandError(
            f"worker {found.id} lives inside another program, which a signal would end: pid {found.pid}, {command}",
            FAILED,
        )
