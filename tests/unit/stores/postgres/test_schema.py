"""The schema: created and migrated once, also by concurrent processes; refused where it is newer."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from onthedot import App, StoreRefused
from onthedot.cli import main
from onthedot.stores.contract import NewTask
from onthedot.stores.postgres import PostgresStore, schema
from onthedot.stores.postgres.grants import called_functions
from tests.unit.stores.postgres.shop import states

ROOT = Path(__file__).parents[4]
PROCESSES = 8


def ask(url: str, query: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


def cli(url: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["schema", *words, "--store", url])


async def _open(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


# -- by the first caller


async def test_many_apps_create_the_schema_at_once(empty: str) -> None:
    stores = [PostgresStore(empty, name=f"app{number}") for number in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    await stores[0].add([NewTask("u1", "a", b"")])
    assert [await states(store, "u1") for store in stores] == [["ready"], *[[None]] * 4]
    for store in stores:
        await store.close()


async def test_verbs_have_settings_and_helpers_have_none(empty: str) -> None:
    await _open(empty)
    found = ask(empty, "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'onthedot'::regnamespace")
    assert ["enable_sort=off"] in [settings for name, settings in found if name == "pending_in_topic_v1"]
    found = [(name, settings) for name, settings in found if name != "pending_in_topic_v1"]
    all_settings = {frozenset(settings) for _, settings in found if settings}
    assert all_settings == {
        frozenset({
            "search_path=onthedot", "lock_timeout=4s", "plan_cache_mode=force_generic_plan", "enable_seqscan=off",
            "enable_bitmapscan=off", "jit=off",
        })
    }  # fmt: skip
    verbs = called_functions().verbs
    assert sorted(name for name, settings in found if settings) == sorted(set(verbs) - {"app_v1"})


TOGETHER = """
import os, sys
from onthedot import App
from onthedot.stores.postgres import schema

if sys.argv[2:]:  # a later version; migrating twice would be an error
    schema.MIGRATIONS = {schema.VERSION: "ALTER TABLE onthedot.task ADD COLUMN novel integer"}
    schema.VERSION += 1
app = App("shop", store=sys.argv[1])
gate, children = os.pipe(), []
for number in range(PROCESSES):
    if not (pid := os.fork()):
        os.close(gate[1])
        os.read(gate[0], 1)  # all begin when the gate is closed
        code = 1
        try:
            app.named("note").delay(number=number)
            app.shutdown()
            code = 0
        finally:
            os._exit(code)
    children.append(pid)
os.close(gate[1])
sys.exit(max(os.waitpid(pid, 0)[1] for pid in children))
"""


def together(url: str, *flags: str) -> None:
    """Start processes that each add a task at once."""
    command = [sys.executable, "-c", TOGETHER.replace("PROCESSES", str(PROCESSES)), url, *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_eight_processes_start_at_once_on_an_empty_database(empty: str) -> None:
    together(empty)
    assert ask(empty, "SELECT number FROM onthedot.version") == [(schema.VERSION,)]
    assert ask(empty, "SELECT count(*), count(DISTINCT uuid) FROM onthedot.task") == [(PROCESSES, PROCESSES)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_eight_processes_migrate_at_once_while_others_work(empty: str) -> None:
    """The functions of the old version remain: running workers continue, new processes must be upgraded."""
    app: App[None] = App("shop", store=empty)
    ran: list[int] = []

    @app.task
    async def note(number: int) -> int:
        ran.append(number)
        return number

    with app.background():
        assert note.delay(100).result(timeout=20) == 100
        together(empty, "novel")
        assert ask(empty, "SELECT number FROM onthedot.version") == [(schema.VERSION + 1,)]
        assert note.delay(101).result(timeout=20) == 101
    app.shutdown()
    assert sorted(ran) == [*range(PROCESSES), 100, 101]
    words = f"has schema version {schema.VERSION + 1}, and this onthedot knows {schema.VERSION}: upgrade onthedot"
    with pytest.raises(StoreRefused, match=words):
        asyncio.run(_open(empty))


async def test_reads_follow_an_app_into_a_database_that_was_made_anew(empty: str) -> None:
    """There its id belongs to another app."""
    store = PostgresStore(empty, name="shop")
    await store.open()
    await store.add([NewTask("u1", "a", b"")])
    await asyncio.to_thread(ask, empty, "DROP SCHEMA onthedot CASCADE")
    await asyncio.to_thread(schema.install, empty)
    other = PostgresStore(empty, name="other")
    await other.open()
    await other.add([NewTask("u2", "a", b"")])
    assert await states(store, "u1", "u2") == [None, None]
    assert await store.tally() == {}
    await store.add([NewTask("u3", "b", b"")])
    assert await states(store, "u2", "u3") == [None, "ready"]
    assert await store.tally() == {("b", "ready"): 1}
    await other.close()
    await store.close()


# -- by a command


def test_schema_print_install_and_check(empty: str) -> None:
    before = cli(empty, "check")
    assert before.exit_code == 1
    assert f"schema version 0, this onthedot needs {schema.VERSION}: run `onthedot schema install`" in before.output
    with pytest.raises(StoreRefused, match="schema install"):
        asyncio.run(_open(f"{empty}?auto_schema=0"))
    for words in (["install"], ["install"], ["check"]):
        result = cli(f"{empty}?auto_schema=0", *words)
        words_of_success = f"schema version {schema.VERSION}, as it should be"
        assert (result.exit_code, words_of_success in result.output) == (0, True)
    assert json.loads(cli(empty, "check", "--json").output)["ok"] is True
    asyncio.run(_open(f"{empty}?auto_schema=0"))


def test_the_printed_schema_is_complete(empty: str) -> None:
    """Another person may run it: in one transaction, with any client."""
    with psycopg.connect(empty) as connection:
        connection.execute(cli(empty, "print").output)
    assert cli(empty, "check").exit_code == 0
    app: App[None] = App("shop", store=f"{empty}?auto_schema=0")

    @app.task
    async def note(number: int) -> int:
        return number

    with app.background():
        assert note.delay(7).result(timeout=20) == 7
    app.shutdown()


def test_a_newer_schema_is_refused(empty: str) -> None:
    schema.install(empty)
    ask(empty, "UPDATE onthedot.version SET number = 99")
    words = f"has schema version 99, and this onthedot knows {schema.VERSION}: upgrade onthedot"
    with pytest.raises(StoreRefused, match=words):
        asyncio.run(_open(empty))
    for verb in ("check", "install"):
        result = cli(empty, verb)
        assert (result.exit_code, words in result.output) == (3, True), result.output
    assert ask(empty, "SELECT number FROM onthedot.version") == [(99,)]


def test_an_older_schema_without_a_migration_is_refused(empty: str) -> None:
    schema.install(empty)
    ask(empty, "UPDATE onthedot.version SET number = 1")
    words = f"has schema version 1, too old to be migrated to {schema.VERSION}: use another database"
    with pytest.raises(StoreRefused, match=words):
        asyncio.run(_open(empty))
    for verb in ("check", "install"):
        result = cli(empty, verb)
        assert (result.exit_code, words in result.output) == (3, True), result.output
    assert ask(empty, "SELECT number FROM onthedot.version") == [(1,)]
