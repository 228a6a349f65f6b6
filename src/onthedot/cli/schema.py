"""``onthedot schema``: for those who do not let programs change their databases by themselves."""

from __future__ import annotations

import re
from pathlib import Path

import click

from onthedot.cli.options import CliError, GlobalOptions, shared
from onthedot.cli.output import write_json
from onthedot.cli.target import check_there, target
from onthedot.stores.schemes import check_schema, file_of, is_postgres, rights_text, schema_text

_ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def _where(said: GlobalOptions, *, there: bool = False) -> Path | str:
    """The file, or the URL of a database."""
    url, _ = target(said, named=False)
    path = url if is_postgres(url) else file_of(url)
    if path is None:
        raise CliError(f"{url.partition('://')[0]}:// has no schema to look after")
    if there:
        check_there(url)
    return path


def _tell(said: GlobalOptions, ok: bool, text: str) -> None:
    if said.json:
        write_json({"ok": ok, "message": text})
    else:
        click.echo(text)
    raise SystemExit(0 if ok else 1)


@click.command("print")
@click.option(
    "--role", metavar="NAME", help="Instead: the rights of a user that may work with tasks, and nothing else."
)
@shared("store", "name", "app", "json")
@click.pass_obj
def show(said: GlobalOptions, role: str | None) -> None:
    """The schema, as SQL; with --role the rights of a user, for psql or redis-cli."""
    if role is not None:
        key, text = "rights", _rights(said, role)
    else:
        where = _where(said)
        key, text = "schema", schema_text(where) if isinstance(where, str) else schema_text()
    if said.json:
        write_json({key: text})
    else:
        click.echo(text.rstrip())


def _rights(said: GlobalOptions, role: str) -> str:
    if not _ROLE.fullmatch(role):
        raise CliError(f"--role: {role!r} is no name of a user: letters, digits, _ and - are")
    url, app = target(said, named=False)
    text = rights_text(url, role, app)
    if text is None:
        raise CliError(f"{url.partition('://')[0]}:// has no users: whoever may write the file may do anything")
    return text


@click.command()
@shared("store", "name", "app", "json")
@click.pass_obj
def install(said: GlobalOptions) -> None:
    """Make or upgrade the store's schema; nothing happens where it is up to date."""
    _tell(said, *check_schema(_where(said), install=True))


@click.command()
@shared("store", "name", "app", "json")
@click.pass_obj
def check(said: GlobalOptions) -> None:
    """Is the store's schema the one of this version? Exit code 1 if not."""
    _tell(said, *check_schema(_where(said, there=True)))
