"""Errors that the server raises inside a verb: a value that it cannot keep, and codes that nobody has seen before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onthedot import App, TaskFailed
from onthedot.errors import ArgumentError, StoreError, StoreRefused, StoreUnavailable
from onthedot.stores.postgres.errors import translate
from tests.support.services.postgres import Service
from tests.support.waits import wait_until

# Results are base64 in a request; the trigger sees the bytes. The column `app` limits it to the app of one test.
TRIGGER = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('public.{name}_calls');
    RAISE EXCEPTION 'planted by a test' USING ERRCODE = '{code}';
END $$;
CREATE SEQUENCE {name}_calls;
CREATE TRIGGER {name} BEFORE UPDATE ON onthedot.task FOR EACH ROW
    WHEN (new.app = {app} AND position('poison'::bytea IN coalesce(new.result, ''::bytea)) > 0)
    EXECUTE FUNCTION {name}();
"""


@contextmanager
def refused_result(postgres: Service, named: str, code: str) -> Iterator[str]:
    """A trigger that raises `code` for every result with the word poison; gives its name."""
    name = f"planted_{named.replace('-', '_')}"
    ((app,),) = postgres.ask("SELECT id FROM onthedot.app WHERE name = %s", named)
    postgres.ask(TRIGGER.format(name=name, code=code, app=app))
    try:
        yield name
    finally:
        postgres.ask(f"DROP FUNCTION {name}() CASCADE")
        postgres.ask(f"DROP SEQUENCE {name}_calls")


class Failing(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__("it failed")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("22P05", ArgumentError),
        ("23514", ArgumentError),
        ("54000", ArgumentError),
        ("XX000", StoreUnavailable),
        ("P0001", StoreUnavailable),
        ("57P05", StoreUnavailable),
        ("25006", StoreUnavailable),
        ("28P01", StoreRefused),
        ("42501", StoreRefused),
        ("42703", StoreRefused),
    ],
)
def test_only_login_rights_and_schema_are_refused(code: str, kind: type[Exception]) -> None:
    assert type(translate(Failing(code), "a server")) is kind


@pytest.mark.parametrize("code", ["22P05", "23514", "54000"])
def test_a_data_error_inside_a_turn_fails_one_task_and_stops_no_worker(
    postgres: Service, named: str, code: str
) -> None:
    app: App[None] = App(named, store=postgres.url, poll_interval=60)

    @app.task
    async def echo(text: str) -> str:
        return text

    with app.background():
        echo.delay("first").result(timeout=20)
        with refused_result(postgres, named, code):
            handles = [echo.delay(text) for text in ("a", "poison", "b")]
            with pytest.raises(TaskFailed, match=rf"its outcome cannot be stored: .*planted by a test.*{code}"):
                handles[1].result(timeout=20)
            assert [handles[0].result(timeout=20), handles[2].result(timeout=20)] == ["a", "b"]
            assert echo.delay("later").result(timeout=20) == "later"
    app.shutdown()


def test_an_unknown_code_inside_a_turn_is_retried(postgres: Service, named: str) -> None:
    app: App[None] = App(named, store=postgres.url, poll_interval=60)

    @app.task
    async def echo(text: str) -> str:
        return text

    with app.background():
        echo.delay("first").result(timeout=20)
        with refused_result(postgres, named, "XX000") as name:
            handle = echo.delay("poison")
            calls = f"SELECT last_value FROM {name}_calls"
            wait_until(lambda: postgres.ask(calls)[0][0] > 1)
        assert handle.result(timeout=20) == "poison"
    app.shutdown()


@pytest.mark.parametrize("code", ["40P01", "55P03", "53100", "08006", "58030"])
def test_errors_of_the_server_itself_are_store_errors(code: str) -> None:
    assert isinstance(translate(Failing(code), "a server"), StoreError)
