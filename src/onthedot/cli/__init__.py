"""The command line: the group, and the screen that its commands write to.

One file a command group; each is imported only when it is called.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module, metadata

import click

_COMMANDS = {  # name: (the module that has a click command of this name, what --help says)
    "demo": ("onthedot.cli.demo", "A tour in this terminal: it runs, checks itself and ends."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(_COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        try:
            found = metadata.version("onthedot")
        except metadata.PackageNotFoundError:
            found = "(from its source, not installed)"
        click.echo(f"onthedot {found}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
def main() -> None:
    """Tasks that run on time."""


class Screen:
    """Plain lines, for pipes and where there is no rich. Texts have marks: [bold]…[/]."""

    width = 80
    live = False  # is somebody looking?

    def print(self, text: str = "") -> None:
        click.echo(re.sub(r"\[[a-z/]+\]", "", text))

    def title(self, text: str) -> None:
        self.print(f"\n== {text}\n")

    def code(self, text: str, language: str = "python") -> None:  # noqa: ARG002
        click.echo("\n" + textwrap.indent(text, "    ") + "\n")

    @contextmanager
    def picture(self) -> Generator[Callable[[str], None], None, None]:
        """A text that changes. Where nobody looks, only its last state is written."""
        last = [""]
        yield lambda text: last.__setitem__(0, text)
        self.print(last[0])


class RichScreen(Screen):
    """Colours and moving pictures."""

    live = True

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live  # now, and not while something runs

        self._live = Live
        self._console = Console(highlight=False)
        self.width: int = min(self._console.width, 110)

    def print(self, text: str = "") -> None:
        self._console.print(text)

    def title(self, text: str) -> None:
        from rich.rule import Rule

        self._console.print("", Rule(f"[bold]{text}[/]", align="left", style="cyan"), width=self.width)

    def code(self, text: str, language: str = "python") -> None:
        from rich.padding import Padding
        from rich.syntax import Syntax

        shown = Syntax(text, language, theme="ansi_dark", background_color="default", word_wrap=True)
        self._console.print(Padding(shown, (1, 0, 1, 4)), width=self.width)

    @contextmanager
    def picture(self) -> Generator[Callable[[str], None], None, None]:
        from rich.text import Text

        with self._live(console=self._console, auto_refresh=False) as live:
            yield lambda text: live.update(Text.from_markup(text), refresh=True)


def screen() -> Screen:
    """Rich on a terminal, if it is installed; else plain."""
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="replace")  # a terminal that has no … shall show a ? and go on
    if sys.stdout.isatty():
        try:
            return RichScreen()
        except ImportError:
            pass
    return Screen()
