"""``onthedot worker``: run tasks; who does; tell one to go."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import subprocess
import sys
from typing import Any, Literal

import click

from onthedot.cli.options import CliError, GlobalOptions, shared
from onthedot.cli.output import screen, write_json
from onthedot.cli.target import with_operations
from onthedot.operations.workers import WorkerInfo
from onthedot.supervisor.health_port import address
from onthedot.supervisor.messages import LaunchOptions
from onthedot.supervisor.supervisor import Supervisor


@click.command()
@click.argument("app", required=False)
@shared("app", "store")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Worker processes.")
@click.option("-c", "--concurrency", type=click.IntRange(1), help="Tasks at once in each process. [as the app says]")
@click.option("--only", multiple=True, metavar="GLOB", help="Only these sources, as in 'email.*'; may be repeated.")
@click.option("--burst", is_flag=True, help="Until nothing is due and nothing runs any more; then exit.")
@click.option("--stop-timeout", type=click.FloatRange(0), default=25.0, show_default=True,
              help="Seconds that running tasks get at the end; then they go back.")  # fmt: skip
@click.option("--stall-limit", type=click.FloatRange(0), default=900.0, show_default=True,
              help="Seconds for which tasks may block a process; then it is killed. 0: for ever.")  # fmt: skip
@click.option("--health", callback=address, metavar="[HOST]:PORT", help="Serve /healthz and /readyz there.")
@click.option("--log-format", type=click.Choice(["console", "json"]), help="[as your code says, else console]")
@click.pass_obj
def worker(
    said: GlobalOptions,
    /,
    app: str | None,
    processes: int,
    health: tuple[str, int] | None,
    log_format: Literal["console", "json"] | None,
    **more: Any,
) -> None:
    """Run the tasks of APP (app.py or module:app; or -A).

    SIGTERM or Ctrl+C: running tasks finish; twice: they are cancelled and go back. SIGHUP: processes are replaced one
    after the other. A process that dies is started again.
    """
    needs_unix("worker")
    config = LaunchOptions(app_given(said, app), said.store, log_format=log_format, **more)
    sys.exit(asyncio.run(Supervisor(config, processes, health).run()))


def app_given(said: GlobalOptions, app: str | None) -> str:
    if app is not None and said.module is not None and app != said.module:
        raise click.UsageError(f"which app, {app} or -A {said.module}?")
    found = app or said.module
    if found is None:
        raise click.UsageError("which app? Say app.py, or -A module:app.")
    return found


def needs_unix(command: str) -> None:
    if os.name != "posix":
        raise CliError(f"`onthedot {command}` needs Linux or macOS; here write `app.run()` in a script", 1)


@click.command()
@shared("store", "name", "app", "json")
@click.pass_obj
def listed(said: GlobalOptions) -> None:
    """Who works on this store."""
    workers = with_operations(said, lambda operations: operations.workers())
    if said.json:
        write_json({"workers": workers})
        return
    out = screen()
    rows = [
        [each.id, each.host, str(each.pid), str(each.running), out.when(each.started), each.version or "-",
         ", ".join(each.sources)]
        for each in workers
    ]  # fmt: skip
    if rows:
        out.table(("ID", "HOST", "PID", "RUNNING", "SINCE", "VERSION", "SOURCES"), rows)
    else:
        click.echo("nobody works on this store; start one: onthedot worker app.py", err=True)


@click.command()
@click.argument("id", metavar="ID")
@shared("store", "name", "app", "json")
@click.pass_obj
def drain(said: GlobalOptions, id: str) -> None:  # noqa: A002 - what the help calls it
    """Tell a worker of this host to finish and go; a beginning of its ID is enough.

    It takes no more tasks, finishes those it runs, and is not started again by its supervisor.
    """
    workers = with_operations(said, lambda operations: operations.workers())
    found = [each for each in workers if each.id.startswith(id) or each.id.endswith(id)]
    if len(found) != 1:
        ids = ", ".join(each.id for each in workers) or "none"
        raise CliError(f"{'no' if not found else 'more than one'} worker {id}; there are: {ids}", 1)
    _check_drainable(found[0])
    os.kill(found[0].pid, signal.SIGTERM)
    if said.json:
        write_json({"drained": found[0].id, "pid": found[0].pid})
    else:
        click.echo(f"told worker {found[0].id} (pid {found[0].pid}) to finish {found[0].running} tasks and go")


def _check_drainable(found: WorkerInfo) -> None:
    if found.host != platform.node():
        raise CliError(f"worker {found.id} is on {found.host or 'an unknown host'}: run this there", 1)
    told = subprocess.run(["ps", "-o", "args=", "-p", str(found.pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607 - ps is where the system has it
    command = told.stdout.strip()
    if not command:
        raise CliError(f"worker {found.id}: there is no process {found.pid} here any more", 1)
    if "onthedot _child" not in command:
        raise CliError(
            f"worker {found.id} lives inside another program, which a signal would end: pid {found.pid}, {command}", 1
        )
