"""The command line: all commands by name, and how errors are printed.

An error is one line on stderr; with --json it is {"error": {"code", "message"}}. `supervisor.exit_codes` has the exit
codes. There is one module per command group, which is imported only when one of its commands is called.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import click
import msgspec

from onthedot.cli.options import GlobalOptions, shared
from onthedot.errors import OnTheDotError, suggestion
from onthedot.runtime.settings import version
from onthedot.supervisor.exit_codes import CODE_NAMES, INTERRUPTED, exit_code_for


class Lazy(NamedTuple):
    """A command that is imported when it is called."""

    location: str  # module:function
    help: str

    def load(self) -> click.Command:
        module, _, name = self.location.partition(":")
        command = getattr(import_module(f"onthedot.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command


Commands: TypeAlias = "Mapping[str, Lazy | Commands]"

_COMMANDS: Commands = {
    "_child": Lazy("worker:child", ""),  # hidden: the process that `worker` and `dev` start
    "add": Lazy("add:add", "Add a task."),
    "audit": Lazy("audit:audit", "What operators have changed, newest first."),
    "batch": {
        "cancel": Lazy("batch:cancel", "Cancel a batch and its parts."),
        "degrade": Lazy("batch:degrade", "Make new batches of a task in one part, by its fallback."),
        "drain": Lazy("batch:drain", "Freeze a task, then wait until all its batches have ended."),
        "freeze": Lazy("batch:freeze", "Accept no new batches of a task; running ones finish."),
        "list": Lazy("batch:list_batches", "Batches, newest first."),
        "restore": Lazy("batch:restore", "Split new batches of a task again."),
        "show": Lazy("batch:show", "A batch: its items, its parts, and why it waits."),
        "thaw": Lazy("batch:thaw", "Accept batches of a task again."),
    },
    "bench": Lazy("bench:bench", "Measure how fast a store is from this machine."),
    "completion": Lazy("completion:completion", "Print the script for completion in bash, zsh or fish."),
    "demo": Lazy("demo:demo", "A tour in this terminal: it runs, checks itself and ends."),
    "dev": Lazy("dev:dev", "Run tasks while you write them: reloads when you save."),
    "doctor": Lazy("doctor:doctor", "Check this machine, the store and the workers."),
    "failed": Lazy("failed:failed", "Failed tasks, grouped by error."),
    "flow": {
        "cancel": Lazy("flow:cancel", "Cancel all tasks of a flow."),
        "list": Lazy("flow:list_flows", "Flows, newest first."),
        "retry": Lazy("flow:retry", "Run the failed tasks of a flow again, and what waited for them."),
        "show": Lazy("flow:show", "A flow: its tasks by state, the first failures, and its waits."),
    },
    "move": Lazy("move:move", "Move pending tasks to another store, while workers run."),
    "outbox": {
        "dlt": {
            "list": Lazy("dlt:list_letters", "Dead letters, newest first."),
            "replay": Lazy("dlt:replay", "Publish the events of dead letters again."),
        },
        "discard": Lazy("outbox:discard", "Give failed events up, so that later ones of their keys are sent."),
        "list": Lazy("outbox:list_events", "Events, in the order of publishing."),
        "pause": Lazy("outbox:pause", "Send no events of a topic, or none at all."),
        "purge": Lazy("outbox:purge", "Mark and delete events that another program has sent."),
        "relay": Lazy("outbox:relay", "Send the events of an app to the bus, without running tasks."),
        "resume": Lazy("outbox:resume", "Send the events of a topic again."),
        "retry": Lazy("outbox:retry", "Send failed events again."),
        "status": Lazy("outbox:status", "Unsent events by topic, relays, groups and resume handles."),
    },
    "schedule": {
        "delete": Lazy("schedule:delete", "Delete a schedule that was put at run time, or an orphan."),
        "list": Lazy("schedule:list_schedules", "Schedules, and when they run next."),
        "pause": Lazy("schedule:pause", "Pause a schedule."),
        "plan": Lazy("schedule:plan", "The next runs, and how many there are per hour."),
        "resume": Lazy("schedule:resume", "Resume a paused schedule."),
        "run": Lazy("schedule:run", "Run a schedule now."),
    },
    "schema": {
        "check": Lazy("schema:check", "Check that the store's schema is that of this version."),
        "install": Lazy("schema:install", "Create or upgrade the store's schema."),
        "print": Lazy("schema:print_schema", "Print the schema as SQL, or the rights of a restricted user."),
    },
    "signal": {
        "list": Lazy("signal:list_signals", "Signals that are kept, or tasks that wait for them."),
        "send": Lazy("signal:send", "Send a signal to the tasks that wait for it."),
    },
    "source": {
        "drain": Lazy("source:drain", "Freeze a source, and wait until all its tasks have ended."),
        "freeze": Lazy("source:freeze", "Accept no new tasks of a source."),
        "limit": Lazy("source:limit", "Limit how many tasks of a source or key run at once or start in a time."),
        "list": Lazy("source:list_sources", "Sources: number of tasks, limits, pauses, workers."),
        "pause": Lazy("source:pause", "Start no more tasks of a source, or of one key of it."),
        "resume": Lazy("source:resume", "Resume a paused source or key."),
        "thaw": Lazy("source:thaw", "Accept tasks of a source again."),
    },
    "task": {
        "cancel": Lazy("task:cancel", "Cancel tasks by uuid, or all that match."),
        "explain": Lazy("task:explain", "Why a task is not running, and when it may."),
        "list": Lazy("task:list_tasks", "Tasks, newest first."),
        "retry": Lazy("task:retry", "Run failed or cancelled tasks again."),
        "show": Lazy("task:show", "All that is known about a task."),
    },
    "top": Lazy("top:top", "Throughput, sources, workers and failures, live."),
    "web": Lazy("web:web", "Serve the HTTP API and the page of a store."),
    "worker": {
        "": Lazy("worker:worker", "Run tasks, in one or more processes."),
        "drain": Lazy("worker:drain", "Let a worker of this host finish its tasks and stop."),
        "list": Lazy("worker:list_workers", "Workers of this store."),
    },
}


class CommandGroup(click.Group):
    """Commands that are imported when they are called. The command "" runs if no other is named: `worker APP`."""

    def __init__(self, *args: Any, lazy: Commands, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(name for name in self.lazy if name and not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        found = self.lazy.get(cmd_name)
        if found is None:
            return None
        if isinstance(found, Lazy):
            return found.load()
        return CommandGroup(cmd_name, lazy=found, no_args_is_help=False)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_missing = ctx.parent is not None and (not args or args[0] not in (*self.lazy, *ctx.help_option_names))
        if is_missing and not ctx.resilient_parsing:  # a shell completes
            group = _group_name(ctx)
            commands = [f"{group} {name}" for name in self.list_commands(ctx)]
            if args and not args[0].startswith("-"):
                named = f"{group} {args[0]}"
                ctx.fail(f"No such command {named!r}{suggestion(named, commands)}")
            ctx.fail(f"{group} needs a command; there are: {', '.join(commands)}")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}{suggestion(args[0], self.list_commands(ctx))}")
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, CommandGroup) and "" in command.lazy and (not rest or rest[0] not in command.lazy):
            return name, command.get_command(ctx, ""), rest
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [row for name in self.list_commands(ctx) for row in _help_rows(name, self.lazy[name])]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _group_name(ctx: click.Context) -> str:
    """As it is typed after `onthedot`: outbox dlt."""
    if ctx.parent is None:
        return ""
    return f"{_group_name(ctx.parent)} {ctx.info_name}".strip()


def _help_rows(name: str, found: Lazy | Commands) -> list[tuple[str, str]]:
    """A command, or those of a group."""
    if isinstance(found, Lazy):
        return [(name, found.help)]
    return [row for each, below in found.items() for row in _help_rows(f"{name} {each}".strip(), below)]


class _Main(CommandGroup):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ensure_object(GlobalOptions).json = "--json" in args  # for errors before the option is parsed
        with _errors_printed(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        with _errors_printed(ctx):
            return super().invoke(ctx)


@contextmanager
def _errors_printed(ctx: click.Context) -> Generator[None, None, None]:
    """Print errors in one line, without a stack trace, and exit with their code."""
    uuid: str | None = None
    try:
        yield
    except OnTheDotError as error:
        message = str(error)
        code = exit_code_for(error)
        uuid = getattr(error, "uuid", None)
    except (KeyboardInterrupt, click.Abort):  # Abort: Ctrl+C or Ctrl+D at a question
        message = "interrupted"
        code = INTERRUPTED
    except click.ClickException as error:
        if not ctx.ensure_object(GlobalOptions).json:
            raise  # click prints it with the usage line
        message = error.format_message()
        code = error.exit_code
    else:
        return
    from onthedot.observability.log_format import clean_json, clean_lines  # most calls do not need it

    text = clean_lines(f"onthedot: {message}")
    if ctx.ensure_object(GlobalOptions).json:
        name = CODE_NAMES.get(code, "failed")
        details = {"code": name, "message": message} | ({"uuid": uuid} if uuid else {})
        text = clean_json(msgspec.json.encode({"error": details}).decode())
    click.echo(text, err=True)
    ctx.exit(code)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"onthedot {version()}")
        ctx.exit()


@click.group(
    cls=_Main,
    lazy=_COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"], "max_content_width": 100,
        "auto_envvar_prefix": "ONTHEDOT",  # every flag is also ONTHEDOT_<COMMAND>_<FLAG>
    },
)  # fmt: skip
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, allow_from_autoenv=False,
    help="Show the version and exit.",
)  # fmt: skip
@shared("store", "name", "app", "json", "utc")
def main() -> None:
    """Tasks that run on time.

    Every flag can also be an environment variable: ONTHEDOT_STORE, ONTHEDOT_WORKER_PROCESSES, …
    """
