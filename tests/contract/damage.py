"""Damage to stored records, as a full disk, a bug of another version or a person could leave it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from onthedot.stores.contract import Store
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.sqlite import SqliteStore
from tests.support.services.postgres import Service


async def damage_policy(store: Store, uuid: str) -> None:
    """Make the policy of one task unreadable."""
    match store:
        case SqliteStore():
            _run_on_file(store, "UPDATE onthedot_task SET policy = 'not a policy' WHERE uuid = ?", uuid)
        case PostgresStore():
            Service.current.ask("UPDATE onthedot.task SET policy = 'not a policy' WHERE uuid = %s", uuid)
        case _:
            raise NotImplementedError(type(store))


async def add_policy_field(store: Store, uuid: str) -> None:
    """Add a field to the policy of one task, as a newer version could have written it."""
    match store:
        case SqliteStore():
            _run_on_file(store, "UPDATE onthedot_task SET policy = json_set(policy, '$.newer', 1) WHERE uuid = ?", uuid)
        case PostgresStore():
            newer = "policy::jsonb || jsonb_build_object('newer', 1)"
            Service.current.ask(f"UPDATE onthedot.task SET policy = {newer} WHERE uuid = %s", uuid)
        case _:
            raise NotImplementedError(type(store))


def _run_on_file(store: SqliteStore, statement: str, *parameters: object) -> None:
    with closing(sqlite3.connect(store.path)) as db, db:
        assert db.execute(statement, parameters).rowcount == 1
