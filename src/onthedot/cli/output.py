"""Output of commands: colours and tables on a terminal, plain lines in a pipe, JSON for machines.

Secrets in the data of users are hidden here: in tables, in JSON, and by `visible` in lines.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from onthedot.cli.table import Column, TextTable, cut
from onthedot.model.redaction import default_redaction
from onthedot.observability.log_format import clean, clean_json, clean_lines
from onthedot.operations.humanize import SHORT_ID, from_now, short_id

if TYPE_CHECKING:
    from rich.text import Text

_GAP = "  "  # between columns
_COLOURS = {
    "succeeded": "green", "failed": "red", "cancelled": "yellow", "running": "cyan", "ready": "bold",
    "scheduled": "dim", "waiting": "blue", "✓": "green", "✗": "red", "paused": "yellow", "orphan": "red", "over": "dim",
}  # fmt: skip


class Screen:
    """Plain lines, for pipes and without rich. Texts may have markup: [bold]…[/].

    utc: times are shown in UTC, else in local time.
    """

    width = 80  # of titles and code
    live = False  # a terminal
    is_relative = False  # `when` returns how long ago it is

    def __init__(self, *, utc: bool = False) -> None:
        self.utc = utc
        self.columns: int | None = _columns()

    def print(self, text: str = "") -> None:
        click.echo(re.sub(r"\[[a-z/]+\]", "", text))

    def title(self, text: str) -> None:
        self.print(f"\n== {text}\n")

    def code(self, text: str, language: str = "python") -> None:  # noqa: ARG002
        click.echo("\n" + textwrap.indent(text.rstrip(), "    ") + "\n")

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

    def table(
        self,
        columns: Sequence[Column | str],
        rows: Sequence[Sequence[str]],
        notes: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.draw(text_table(columns, rows, notes))

    def draw(self, table: TextTable) -> None:
        for cells in table.lines(self.columns):
            click.echo(_GAP.join(cells).rstrip())

    def lines_and_tables(self, lines: Sequence[str], tables: Sequence[TextTable]) -> None:
        for line in lines:
            click.echo(cut(visible(line), self.columns))
        for table in tables:
            click.echo()
            self.draw(table)

    def moment(self, at: datetime) -> str:
        """With the offset of its zone; commands read it as it is written."""
        return at.astimezone(UTC if self.utc else None).isoformat(" ", "seconds")

    def when(self, at: datetime | None) -> str:
        """For a table."""
        if at is None:
            return "-"
        return from_now(at) if self.is_relative else self.moment(at)


class RichScreen(Screen):
    """Colours, progress bars and texts that change."""

    live = True

    def __init__(self, *, utc: bool = False) -> None:
        from rich.console import Console
        from rich.live import Live  # imported now, so that the first picture is not late

        super().__init__(utc=utc)
        self.is_relative: bool = not utc
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

        shown = Syntax(text.rstrip(), language, theme="ansi_dark", background_color="default", word_wrap=True)
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
    def full_screen(self) -> Generator[Callable[[Sequence[str], Sequence[TextTable]], None], None, None]:
        """Take the whole terminal; its former content comes back at the end."""
        from rich.console import Group
        from rich.text import Text

        def show(lines: Sequence[str], tables: Sequence[TextTable]) -> None:
            self.columns = self._console.width  # of a terminal that was resized
            head = Text("\n".join(map(visible, lines)), no_wrap=True, overflow="ellipsis")
            parts: list[Text] = []
            for table in tables:
                parts += [Text(), *self._styled(table)]
            live.update(Group(head, *parts), refresh=True)

        with self._live(console=self._console, screen=True, auto_refresh=False) as live:
            yield show

    def draw(self, table: TextTable) -> None:
        for line in self._styled(table):
            self._console.print(line, soft_wrap=True)

    def _styled(self, table: TextTable) -> Generator[Text, None, None]:
        from rich.text import Text

        is_header = any(column.title for column in table.columns)
        for cells in table.lines(self.columns):
            line = Text(no_wrap=True, overflow="ignore")
            for place, cell in enumerate(cells):
                style = "bold dim" if is_header else _COLOURS.get(cell.strip(), "")
                line.append(_GAP if place else "").append(cell, style)
            line.rstrip()
            is_header = False
            yield line


def _columns() -> int | None:
    """The width of the terminal, or $COLUMNS; None in a pipe without it: nothing is cut there."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def text_table(
    columns: Sequence[Column | str], rows: Sequence[Sequence[str]], notes: Mapping[int, Sequence[str]] | None = None
) -> TextTable:
    """Without secrets and control characters."""
    titled = [Column(column) if isinstance(column, str) else column for column in columns]
    cells = [[visible(cell) for cell in row] for row in rows]
    below = {row: [visible(note) for note in texts] for row, texts in (notes or {}).items()}
    return TextTable(titled, cells, below)


def short_ids(uuids: Sequence[str]) -> list[str]:
    """Return for each uuid a part that only it has among these: its end, its beginning, or all of it.

    >>> short_ids(["01a1e212-de42-73a9-a624-125b4862a31e", "01a1e212-de42-73a9-a625-125b4862a31e", "order-17"])
    ['01a1e212-de42-73a9-a624-125b4862a31e', '01a1e212-de42-73a9-a625-125b4862a31e', 'order-17']
    >>> short_ids(["01a1e212-de42-73a9-a624-125b4862a31e", "01a1e213-6c3b-73a9-a624-125b4862a31f"])
    ['5b4862a31e', '5b4862a31f']
    """
    different = set(uuids)
    ends = Counter(map(short_id, different))
    beginnings = Counter(uuid[:SHORT_ID] for uuid in different)

    def shortest(uuid: str) -> str:
        if ends[short_id(uuid)] == 1:
            return short_id(uuid)
        if beginnings[uuid[:SHORT_ID]] == 1:
            return uuid[:SHORT_ID]
        return uuid

    return [shortest(uuid) for uuid in uuids]


def screen(*, plain: bool = False, utc: bool = False) -> Screen:
    """Return a RichScreen on a terminal, if rich is installed; else a plain one."""
    if plain:
        return Screen(utc=utc)
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="replace")  # a terminal without … shows ? instead
    if sys.stdout.isatty():
        try:
            return RichScreen(utc=utc)
        except ImportError:
            pass
    return Screen(utc=utc)


def write(text: str, value: object, *, json: bool) -> None:
    """Write the text, or with --json the value."""
    if json:
        write_json(value)
    else:
        click.echo(text)


def write_json(value: object, *, names: Collection[str] = ()) -> None:
    """Write an object without secrets. names: as in `Redaction.value`."""
    write_raw_json(json_without_secrets(value, names))


def write_raw_json(value: object) -> None:
    """Write an object as it is."""
    click.echo(clean_json(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()))


def json_without_secrets(value: object, names: Collection[str] = ()) -> object:
    """The value as JSON has it, without secrets. names: as in `Redaction.value`."""
    return default_redaction().value(msgspec.json.decode(msgspec.json.encode(value, enc_hook=str)), names).value


def visible(text: str) -> str:
    """The text on one line, without secrets and control characters."""
    return default_redaction().text(clean(text))


def visible_lines(text: str) -> str:
    """The lines of a text, without secrets and control characters."""
    return default_redaction().text(clean_lines(text))
