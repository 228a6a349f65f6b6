"""``onthedot schema``: for those who do not let programs change their databases by themselves."""

from __future__ import annotations

from pathlib import Path

import click

from onthedot.cli.options import Mistake, Said, shared
from onthedot.cli.screen import write_json
from onthedot.cli.store import check_there, target
from onthedot.stores.about import check_schema, file_of, is_postgres, schema_text


def _where(said: Said, *, there: bool = False) -> Path | str:
    """The file, or the URL of a database."""
    url, _ = target(said, named=False)
    path = url if is_postgres(url) else file_of(url)
    if path is None:
        raise Mistake(f"{url.partition('://')[0]}:// has no schema to look after")
    if there:
        check_there(url)
    return path


def _tell(said: Said, ok: bool, text: str) -> None:
    if said.json:
        write_json({"ok": ok, "message": text})
    else:
        click.echo(text)
    raise SystemExit(0 if ok else 1)


@click.command("print")
@shared("store", "name", "app", "json")
@click.pass_obj
def show(said: Said) -> None:
    """The schema, as SQL."""
    where = _where(said)
    text = schema_text(where) if isinstance(where, str) else schema_text()
    if said.json:
        write_json({"schema": text})
    else:
        click.echo(text.rstrip())


@click.command()
@shared("store", "name", "app", "json")
@click.pass_obj
def install(said: Said) -> None:
    """Make or upgrade the store's schema; nothing happens where it is up to date."""
    _tell(said, *check_schema(_where(said), install=True))


@click.command()
@shared("store", "name", "app", "json")
@click.pass_obj
def check(said: Said) -> None:
    """Is the store's schema the one of this version? Exit code 1 if not."""
    _tell(said, *check_schema(_where(said, there=True)))
