"""The public names and the error tree, frozen: a change here is a change for users and belongs into the changelog."""

from __future__ import annotations

import re

import pytest

import onthedot
from onthedot import errors, events, mq
from onthedot.integrations import django, fastapi, prefect, prometheus, testing as web_testing

NAMES = """
    App TaskOptions TaskFunction TaskHandle AsyncTaskHandle TaskContext current_task as_completed
    StreamFunction StreamHandle AsyncStreamHandle StreamEntry
    FlowHandle AsyncFlowHandle FlowProgress Group Takes TaskFailure group
    Task TaskState TaskInfo TaskPage Explanation Call BaseTaskConsumer TaskConsumerRegistry Scheduler Processes
    get_scheduler start_scheduler stop_scheduler get_scheduler_status
    IntervalSchedule CronSchedule DailySchedule OnceSchedule Rate AtMost
    Retry Snooze Reject Cancel Signal
    OnTheDotError DeclarationError DuplicateTask BadSchedule BadLimit BadEvent ArgumentError TaskError TaskFailed
    TaskCancelled TaskTimeout WorkerDied TaskNotFound ResultExpired ResultNotStored StepChanged StreamRestarted
    StoreError StoreUnavailable StoreBusy StoreFull SourceFrozen StoreRefused SchedulerStateError Expired
    Batch SyncBatch BatchPolicy BatchProgress BatchResult Dedup Part SizeTable
""".split()  # noqa: SIM905 -- read and compared as a block

BASES = {
    "OnTheDotError": ["Exception"],
    "DeclarationError": ["OnTheDotError", "TypeError"],
    "DuplicateTask": ["DeclarationError"],
    "BadSchedule": ["DeclarationError"],
    "BadLimit": ["DeclarationError"],
    "BadEvent": ["DeclarationError"],
    "ArgumentError": ["OnTheDotError", "TypeError"],
    "TaskError": ["OnTheDotError"],
    "TaskFailed": ["TaskError"],
    "TaskTimeout": ["TaskFailed"],
    "WorkerDied": ["TaskFailed"],
    "TaskCancelled": ["TaskError"],
    "TaskNotFound": ["TaskError"],
    "ResultExpired": ["TaskError"],
    "ResultNotStored": ["TaskError"],
    "StepChanged": ["TaskError"],
    "StreamRestarted": ["TaskError"],
    "StoreError": ["OnTheDotError"],
    "StoreUnavailable": ["StoreError"],
    "StoreBusy": ["StoreError"],
    "StoreFull": ["StoreError"],
    "SourceFrozen": ["StoreFull"],
    "StoreRefused": ["StoreError"],
    "SchedulerStateError": ["OnTheDotError"],
    "Expired": ["OnTheDotError", "TimeoutError"],
    "TaskControl": ["BaseException"],
    "Retry": ["TaskControl"],
    "Snooze": ["TaskControl"],
    "Reject": ["TaskControl"],
    "Cancel": ["TaskControl"],
}


def test_public_names_are_frozen() -> None:
    assert sorted(onthedot.__all__) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_public_name_exists_and_is_documented(name: str) -> None:
    assert getattr(onthedot, name).__doc__


def test_module_exports_the_public_names_only() -> None:
    """They are imported at their first use, and behave like ordinary names."""
    assert set(NAMES) <= set(dir(onthedot))
    with pytest.raises(ImportError, match="cannot import name 'Aplication' from 'onthedot'"):
        exec("from onthedot import Aplication")
    with pytest.raises(AttributeError, match="module 'onthedot' has no attribute '_App'"):
        exec("import onthedot; onthedot._App")
    everything: dict[str, object] = {}
    exec("from onthedot import *", everything)
    assert sorted(everything.keys() - {"__builtins__"}) == sorted(NAMES)


def test_names_and_defaults_of_the_message_queue_are_frozen() -> None:
    assert sorted(mq.__all__) == ["MQConfig", "MessageQueue", "RedisMessageQueue"]
    verbs = """
        app config dead_letters health_check is_running metrics produce register_handler retry run start
        start_background status stop
    """.split()  # noqa: SIM905 -- read and compared as a block
    queue = mq.MessageQueue("memory://")
    assert sorted(name for name in dir(queue) if not name.startswith("_")) == verbs
    defaults = {name: field.default for name, field in mq.MQConfig.__dataclass_fields__.items()}
    assert [mq.MQConfig().retry_delays, mq.MQConfig().handler_timeouts] == [[60, 300, 1800], {}]
    del defaults["retry_delays"], defaults["handler_timeouts"]
    assert defaults == {
        "url": None, "redis_host": "localhost", "redis_port": 6379, "redis_db": 0, "redis_password": None,
        "redis_ssl": False, "redis_max_connections": 10, "queue_prefix": "mq", "max_workers": 5, "batch_size": 100,
        "delay_fallback_interval": 10, "message_ttl": 86_400, "processing_timeout": 180, "handler_timeout": 60,
        "max_retries": 3, "monitor_interval": 30,
    }  # fmt: skip


def test_names_of_events_are_frozen() -> None:
    names = [
        "AgentRegistry", "BaseAgent", "CallbackService", "Event", "Events", "Kafka", "ResumeHandle", "agent",
        "classify", "event_id",
    ]  # fmt: skip
    assert sorted(events.__all__) == names


def test_names_of_the_django_integration_are_frozen() -> None:
    assert django.__all__ == ["Backend", "get_app"]


def test_names_of_the_fastapi_integration_are_frozen() -> None:
    assert fastapi.__all__ == ["User", "accepted", "anyone", "dashboard", "lifespan", "refused", "sse", "status"]


def test_names_of_the_prometheus_integration_are_frozen() -> None:
    assert prometheus.__all__ == ["Collector"]


def test_names_of_the_prefect_integration_are_frozen() -> None:
    assert prefect.__all__ == ["Resumable", "prefect_run", "wait_for"]


def test_names_of_the_page_under_test_are_frozen() -> None:
    assert web_testing.__all__ == ["HttpAnswer", "TestWeb"]


def test_error_tree_is_frozen() -> None:
    classes = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    found = {
        name: [base.__name__ for base in value.__bases__]
        for name, value in classes.items()
        if issubclass(value, BaseException) and value.__module__ == errors.__name__
    }
    assert found == BASES


def test_drawing_of_the_error_tree_is_correct() -> None:
    parents = {name: bases[0] for name, bases in BASES.items() if bases[0] in BASES}
    assert drawn_parents(errors.__doc__ or "") == parents


def drawn_parents(drawing: str) -> dict[str, str]:
    """Child and parent of a tree drawn with four columns per level."""
    path: list[str] = []
    parents: dict[str, str] = {}
    for branch, name in re.findall(r"^    ([│├└─ ]*)(\w+)", drawing, re.MULTILINE):
        path[len(branch) // 4 :] = [name]
        if len(path) > 1:
            parents[name] = path[-2]
    return parents
