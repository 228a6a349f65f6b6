"""The reference has every option of a store's URL and every log line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onthedot import App, StoreRefused
from onthedot.runtime.settings import URL_SCHEMES
from onthedot.stores.postgres import PostgresAddress
from tests.support.source_files import ROOT, nodes, short_name, source_files, syntax_tree

REFERENCE = ROOT / "docs" / "reference"
LEVELS = {"info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}


def options_of(store: str) -> set[str]:
    section = (
        (REFERENCE / "settings.md").read_text("utf-8").partition(f"### Options of {store}\n")[2].partition("\n#")[0]
    )
    return {
        name for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    }


@pytest.mark.parametrize(("url", "store"), [("sqlite:///shop.db", "SQLite"), ("redis://cache", "Redis and Valkey")])
def test_settings_have_every_option_of_a_url(url: str, store: str) -> None:
    """A store that refuses an unknown option names the known ones."""
    with pytest.raises(StoreRefused) as refused:
        App("shop", store=f"{url}?nonsense=1").sync.get("1")
    known = re.split(r"known (?:is|are) ", str(refused.value))[1]
    assert options_of(store) == set(re.findall(r"[a-z]\w+", known))


def test_settings_have_the_options_of_postgres() -> None:
    ours = PostgresAddress.of(
        "postgresql://db/shop?auto_schema=0&lease=5&listen=db:5432&notify=0&statement_cache_size=0"
    )
    assert ours.dsn == "postgresql://db/shop"
    of_libpq = {"sslmode", "sslrootcert", "sslcert", "sslkey", "service"}
    assert options_of("Postgres") == {"auto_schema", "lease", "listen", "notify", "statement_cache_size"} | of_libpq


def test_settings_have_every_scheme() -> None:
    text = (REFERENCE / "settings.md").read_text("utf-8")
    assert [scheme for scheme in URL_SCHEMES if f"`{scheme}://" not in text] == []


def logged_lines() -> Iterator[tuple[str, str, str]]:
    """File, level and text of every line that the library logs."""
    for path in source_files("py"):
        for node in nodes(path):
            match node:
                case ast.Call(func=ast.Attribute(attr=level, value=logger), args=[text, *_]) if level in LEVELS:
                    if re.search(r"\b(_?log|scheduler|task|store|events)$", ast.unparse(logger)):
                        yield short_name(path), LEVELS[level], constant(path, text)


def constant(path: Path, node: ast.expr) -> str:
    """The text, also of a name that the module defines."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    for each in syntax_tree(path).body:
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == ast.unparse(node):
            return str(ast.literal_eval(each.value))
    raise AssertionError(f"{short_name(path)}: the text of a log line is not constant: {ast.unparse(node)}")


def shown(text: str) -> str:
    """As the page shows it, with values left out."""
    return re.sub("…+", "…", re.sub(r"%(?:\.\d)?[sdf]", "…", text))


def test_reference_has_every_log_line() -> None:
    page = (REFERENCE / "log-lines.md").read_text("utf-8")
    sections = {level: page.partition(f"\n## {level}\n")[2].partition("\n## ")[0] for level in LEVELS.values()}
    lines = [each for each in logged_lines() if shown(each[2]) != "…"]  # this is a summary, described above the table
    assert len(lines) > 30
    missing = [(file, level, shown(text)) for file, level, text in lines if shown(text) not in sections[level]]
    assert missing == []
