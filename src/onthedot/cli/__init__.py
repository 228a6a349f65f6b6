"""The command line: every command by name, and what its end tells the shell.

Exit codes: 0 done · 1 failed, or the answer is no · 2 wrong usage · 3 trouble with the store · 124 waited too long ·
130 interrupted. What went wrong is told on stderr, in one line; with --json as {"error": {"code", "message"}}.
One file a command group; each is imported only when it is called.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module

import click
import msgspec

from onthedot.cli.interrupt import INTERRUPTED
from onthedot.cli.options import GlobalOptions, shared
from onthedot.errors import ArgumentError, DeclarationError, OnTheDotError, StoreError, meant
from onthedot.runtime.settings import version

_COMMANDS = {  # name: (module:click command, what --help says)
    "add": ("add:add", "Add a task."),
    "demo": ("demo:demo", "A tour in this terminal: it runs, checks itself and ends."),
    "dev": ("dev:dev", "Work while you write: reloads when you save."),
    "doctor": ("doctor:doctor", "Is everything as it should be?"),
    "failed": ("failed:failed", "What has failed, grouped by error."),
    "move": ("move:move", "Move what is alive to another store, while workers go on."),
    "schedule delete": ("schedule:delete", "Remove one that was put at run time, or an orphan."),
    "schedule list": ("schedule:listed", "What runs by itself, and when next."),
    "schedule pause": ("schedule:pause", "Stop one for a while."),
    "schedule plan": ("schedule:plan", "The next runs, and the load of the day."),
    "schedule resume": ("schedule:resume", "Let it go on."),
    "schedule run": ("schedule:run", "Run one now."),
    "schema check": ("schema:check", "Is the store's schema the one of this version?"),
    "schema install": ("schema:install", "Make or upgrade the store's schema."),
    "schema print": ("schema:show", "The schema, as SQL; or the rights of a restricted user."),
    "source limit": ("source:limit", "So many at once or in a time, for a source or one key of it."),
    "source list": ("source:listed", "Sources: what waits, their limits, who could run them."),
    "source pause": ("source:pause", "Start nothing more of a source, or of one key of it."),
    "source resume": ("source:resume", "Let a source go on."),
    "task cancel": ("task:cancel", "End tasks: by uuid, or all that match."),
    "task explain": ("explain:explain", "Why a task is not running, and when it may."),
    "task list": ("task:listed", "Tasks, newest first."),
    "task retry": ("task:retry", "Run failed or cancelled tasks again."),
    "task show": ("task:show", "All that is known of a task."),
    "top": ("top:top", "What goes on, as it happens."),
    "worker": ("worker:worker", "Run tasks, in as many processes as you like."),
    "worker drain": ("worker:drain", "Tell a worker of this host to finish and go."),
    "worker list": ("worker:listed", "Who works on this store."),
}
_CODES = {2: "usage", 3: "store", 124: "timeout", INTERRUPTED: "interrupted"}  # exit code: of an error in JSON
_INTERNAL = {"_child": ("onthedot.supervisor.worker_main:child", "")}  # what `worker` and `dev` start


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        known = _COMMANDS.get(cmd_name) or _INTERNAL.get(cmd_name)
        if known is None:
            return None
        module, _, name = known[0].partition(":")
        command = getattr(import_module(module if "." in module else f"onthedot.cli.{module}"), name)
        assert isinstance(command, click.Command)
        prefix = f"ONTHEDOT_{cmd_name.replace(' ', '_').upper()}"  # every flag also as ONTHEDOT_<COMMAND>_<FLAG>
        command.context_settings.setdefault("auto_envvar_prefix", prefix)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A command may have two words."""
        words = " ".join(args[:2])
        if words in _COMMANDS:
            return words, self.get_command(ctx, words), args[2:]
        below = [name for name in _COMMANDS if name.startswith(f"{args[0]} ")]
        if below and args[0] not in _COMMANDS:
            if ctx.help_option_names[0] in args or ctx.help_option_names[1] in args:
                click.echo("\n".join(f"onthedot {name:15}  {_COMMANDS[name][1]}" for name in below))
                ctx.exit(0)
            ctx.fail(f"{args[0]} what? There are: {', '.join(below)}.")
        if not below and args[0] not in _INTERNAL and args[0] not in _COMMANDS:
            ctx.fail(f"No such command {args[0]!r}{meant(args[0], {name.split()[0] for name in _COMMANDS})}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ensure_object(GlobalOptions).json = "--json" in args  # also if a mistake comes before anybody has read it
        with _told(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        with _told(ctx):
            return super().invoke(ctx)


@contextmanager
def _told(ctx: click.Context) -> Generator[None, None, None]:
    """What went wrong is told in one line: a stack trace helps nobody who did not write it."""
    try:
        yield
    except OnTheDotError as error:
        message, code, shown = str(error), exit_code(error), f"onthedot: {error}"
    except click.ClickException as error:
        if not ctx.ensure_object(GlobalOptions).json:
            raise
        message, code, shown = error.format_message(), error.exit_code, ""
    else:
        return
    if ctx.ensure_object(GlobalOptions).json:
        shown = msgspec.json.encode({"error": {"code": _CODES.get(code, "failed"), "message": message}}).decode()
    click.echo(shown, err=True)
    ctx.exit(code)


def exit_code(error: OnTheDotError) -> int:
    if isinstance(error, StoreError):
        return 3
    return 2 if isinstance(error, DeclarationError | ArgumentError) else 1


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"onthedot {version()}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
@shared("store", "name", "app", "json")
def main() -> None:
    """Tasks that run on time.

    Every flag can also be an environment variable: ONTHEDOT_STORE, ONTHEDOT_WORKER_PROCESSES, …
    """
