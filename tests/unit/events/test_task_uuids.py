"""The uuids of the tasks of events."""

from __future__ import annotations

import pytest

from onthedot.events.received_records import task_uuid
from onthedot.model.task import check_uuid
from onthedot.model.uuid7 import new_uuid


def test_tasks_of_events_with_a_time_in_their_ids_are_in_that_order() -> None:
    events = [f"01a1f61c-{number:04x}-74f3-bc73-1f64116cf4b3" for number in range(50)]
    uuids = [task_uuid("mailer", event) for event in events]
    assert uuids == sorted(uuids)
    assert [check_uuid(uuid) for uuid in uuids] == uuids
    assert [uuid[:14] for uuid in uuids] == [event[:14] for event in events]


def test_agents_replays_and_events_of_one_millisecond_have_other_tasks() -> None:
    event = new_uuid()
    sibling = event[:-1] + ("0" if event[-1] != "0" else "1")
    uuids = [task_uuid("mailer", event), task_uuid("printer", event), task_uuid("mailer", event, 1)]
    uuids.append(task_uuid("mailer", sibling))
    assert len({uuid[14:] for uuid in uuids}) == 4
    assert task_uuid("mailer", event) == uuids[0]


@pytest.mark.parametrize("event", ["e1", "orders/3/17", "01A1F61C-1663-74F3-BC73-1F64116CF4B3", new_uuid() + "\n"])
def test_event_with_another_id_has_a_task_all_the_same(event: str) -> None:
    assert check_uuid(task_uuid("mailer", event)) == task_uuid("mailer", event)
