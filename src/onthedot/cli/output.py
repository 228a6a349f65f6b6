"""Output of commands: colours and tables on a terminal, plain lines in a pipe, JSON for machines."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from onthedot.observability.log_format import clean, clean_json
from onthedot.operations.humanize import from_now

if TYPE_CHECKING:
    from rich.table import Table

Block = tuple[Sequence[str], Sequence[Sequence[str]]]  # columns and rows of a table

_COLOURS = {
    "succeeded": "green", "failed": "red", "cancelled": "yellow", "running": "cyan", "ready": "bold",
    "scheduled": "dim", "✓": "green", "✗": "red", "paused": "yellow", "orphan": "red", "over": "dim",
}  # fmt: skip


class Screen:
    """Plain lines, for pipes and without rich. Texts may have markup: [bold]…[/]."""

    width = 80
    live = False  # a terminal

    def print(self, text: str = "") -> None:
        click.echo(re.sub(r"\[[a-z/]+\]", "", text))

    def title(self, text: str) -> None:
        self.print(f"\n== {text}\n")

    def code(self, text: str, language: str = "python") -> None:  # noqa: ARG002
        click.echo("\n" + textwrap.indent(text, "    ") + "\n")

    @contextmanager
    def picture(self) -> Generator[Callable[[str], None], None, None]:
        """A text that changes. Without a terminal only the last one is written."""
        last = ""

        def show(text: str) -> None:
            nonlocal last
            last = text

        yield show
        self.print(last)

    @contextmanager
    def progress(self, what: str, total: int) -> Generator[Callable[[int], None], None, None]:  # noqa: ARG002
        """A progress bar; the callback takes the number done so far. Without a terminal nothing is written."""
        yield lambda _: None

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        cells = [[clean(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        if any(columns):
            cells.insert(0, [*columns])
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            click.echo("  ".join(padded).rstrip())

    def lines_and_tables(self, lines: Sequence[str], blocks: Sequence[Block]) -> None:
        for line in lines:
            click.echo(clean(line))
        for columns, rows in blocks:
            click.echo()
            self.table(columns, rows)

    def when(self, moment: datetime | None) -> str:
        if moment is None:
            return "-"
        return moment.astimezone(UTC).isoformat(" ", "seconds").removesuffix("+00:00")


class RichScreen(Screen):
    """Colours, progress bars and texts that change."""

    live = True

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live  # imported now, so that the first picture is not late

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

    @contextmanager
    def progress(self, what: str, total: int) -> Generator[Callable[[int], None], None, None]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)

    @property
    def height(self) -> int:
        return self._console.height

    @contextmanager
    def full_screen(self) -> Generator[Callable[[Sequence[str], Sequence[Block]], None], None, None]:
        """Take the whole terminal; its former content comes back at the end."""
        from rich.console import Group
        from rich.text import Text

        def show(lines: Sequence[str], blocks: Sequence[Block]) -> None:
            head = Text("\n".join(map(clean, lines)), no_wrap=True, overflow="ellipsis")
            tables = [part for block in blocks for part in ("", self._table(*block))]
            live.update(Group(head, *tables), refresh=True)

        with self._live(console=self._console, screen=True, auto_refresh=False) as live:
            yield show

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self._console.print(self._table(columns, rows))

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=any(columns), header_style="bold dim")
        for number, column in enumerate(columns):  # a wrapped id could not be copied
            table.add_column(column, no_wrap=number == 0, overflow="fold")
        for row in rows:
            table.add_row(*(Text(clean(cell), _COLOURS.get(cell, "")) for cell in row))
        return table

    def when(self, moment: datetime | None) -> str:
        return "-" if moment is None else from_now(moment)


def screen(*, plain: bool = False) -> Screen:
    """Return a RichScreen on a terminal, if rich is installed; else a plain one."""
    if plain:
        return Screen()
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="replace")  # a terminal without … shows ? instead
    if sys.stdout.isatty():
        try:
            return RichScreen()
        except ImportError:
            pass
    return Screen()


def write(text: str, value: object, *, json: bool) -> None:
    """Write the text, or with --json the value."""
    if json:
        write_json(value)
    else:
        click.echo(text)


def write_json(value: object) -> None:
    click.echo(clean_json(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()))
