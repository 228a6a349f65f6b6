"""Add: new tasks, and what happens where a task of the same key exists."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import ENDED, NO_HISTORY, Added, History, Links, NewTask, Record
from onthedot.stores.rules.places import enter, leave, must_end, next_place
from onthedot.stores.rules.records import wait_deadline
from onthedot.stores.rules.task_tables import TaskTables
from onthedot.stores.rules.unique_keys import key_holder, take_key


def add(tables: TaskTables, tasks: Sequence[NewTask]) -> list[Added]:
    """Tasks without a key are inserted together; one with a key may replace a task that was inserted before it."""
    for new in tasks:
        if new.unique is not None:
            return _add_in_order(tables, tasks)
    return tables.insert(tasks) if tasks else []


def _add_in_order(tables: TaskTables, tasks: Sequence[NewTask]) -> list[Added]:
    answers: list[Added] = []
    plain: list[NewTask] = []
    for new in tasks:
        if new.unique is None:
            plain.append(new)
            continue
        if plain:
            answers += tables.insert(plain)
            plain.clear()
        answers.append(_add_unique(tables, new, new.unique))
    return answers + tables.insert(plain) if plain else answers


def _add_unique(tables: TaskTables, new: NewTask, unique: str) -> Added:
    if tables.load(new.uuid) is not None or tables.is_recent(new.uuid):
        return Added(new.uuid, fresh=False)
    holder = key_holder(tables, new.source, unique)
    if holder is not None:
        if new.policy.on_conflict == "replace":
            replace(tables, holder, new)
        return Added(holder, fresh=False)
    take_key(tables, new.uuid, new, int(tables.now))
    return tables.insert([new])[0]


def first_history(links: Links | None, now: float) -> History:
    """The history of new tasks with these links; the tasks of a group share it."""
    if links is None or links.waits is None:
        return NO_HISTORY
    return History(wait_until=wait_deadline(links.waits, now))


def new_record(new: NewTask, seq: int, due: int, added: int, now: float, history: History) -> Record:
    """A new task as a record, in its place. history: of its links."""
    links = new.links
    place = next_place(due, new.lane, now) if links is None or links.waits is None else "waiting"
    return Record(
        new.uuid, new.source, new.body, new.policy, new.lane, new.unique, due, seq, added, place, history, links
    )  # fmt: skip


def replace(tables: TaskTables, uuid: str, new: NewTask) -> None:
    """Give a pending task the body, lane, policy and due time of a new one."""
    old = tables.load(uuid)
    if old is None or old.links is not None or old.state in ENDED or old.state == "waiting":
        return
    if must_end(old.history) or tables.lease_holder(old) is not None:
        return
    leave(tables, old)
    take_key(tables, uuid, new, old.added)
    due = tables.due_time(new)
    place = next_place(due, new.lane, tables.now)
    record = Record(
        uuid, old.source, new.body, new.policy, new.lane, old.unique, due, old.seq, old.added, place, old.history
    )  # fmt: skip
    tables.replace_request(record)
    enter(tables, [record])
