"""``onthedot schema``: for databases whose schema is installed by hand."""

from __future__ import annotations

import re

import click

from onthedot.cli.options import GlobalOptions, store_command
from onthedot.cli.output import write, write_raw_json
from onthedot.cli.target import check_exists, target
from onthedot.stores.schemes import check_schema, has_schema, rights_text, schema_text
from onthedot.supervisor.exit_codes import CommandError

_ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def _database(options: GlobalOptions, *, must_exist: bool = False) -> str:
    """Return the URL of a store that has a schema."""
    url, _ = target(options, named=False)
    if not has_schema(url):
        raise CommandError(f"{url.partition('://')[0]}:// has no schema to look after")
    if must_exist:
        check_exists(url)
    return url


def _print(options: GlobalOptions, ok: bool, message: str) -> None:
    write(message, {"ok": ok, "message": message}, json=options.json)
    raise SystemExit(int(not ok))


@store_command("print")
@click.option("--role", metavar="NAME", help="Instead: the rights of a user that may work with tasks and nothing else.")
def print_schema(options: GlobalOptions, role: str | None) -> None:
    """Print the schema as SQL; with --role the rights of a user, for psql or redis-cli."""
    name = "schema" if role is None else "rights"
    text = schema_text(_database(options)) if role is None else _rights(options, role)
    if options.json:
        write_raw_json({name: text})
    else:
        click.echo(text.rstrip())


def _rights(options: GlobalOptions, role: str) -> str:
    if not _ROLE.fullmatch(role):
        raise CommandError(f"--role: {role!r} is no name of a user: letters, digits, _ and - are")
    url, app = target(options, named=False)
    text = rights_text(url, role, app)
    if text is None:
        scheme = url.partition("://")[0]
        raise CommandError(f"{scheme}:// has no users: everybody with write access to the file may do anything")
    return text


@store_command()
def install(options: GlobalOptions) -> None:
    """Create or upgrade the store's schema; nothing happens where it is up to date."""
    _print(options, *check_schema(_database(options), install=True))


@store_command()
def check(options: GlobalOptions) -> None:
    """Check that the store's schema is that of this version. Exit code 1 if not."""
    _print(options, *check_schema(_database(options, must_exist=True)))
