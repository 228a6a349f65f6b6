"""The reference has every public name, and every parameter of it is described where an editor shows it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, is_typeddict

import pytest

import onthedot
from onthedot import events, mq, testing
from onthedot.api.batch_modes import Batches, SyncBatches
from onthedot.api.functions import Call, Enqueuer, NamedTask, ScheduledFunction
from onthedot.api.operations import AppOperations, LimitChange, SyncOperations
from onthedot.api.outbox import AppOutbox, EventFilter, SyncAppOutbox
from onthedot.api.schedules import PlanRange, ScheduleOptions, Schedules, SyncSchedules
from onthedot.api.stream_functions import StreamEnqueuer
from onthedot.batches.requests import BatchArguments
from onthedot.codec.body import Caps
from onthedot.integrations import django, fastapi, prefect, prometheus, testing as web_testing
from onthedot.model.context import SyncTaskContext
from onthedot.model.options import AddOptions
from onthedot.operations.explain import Explanation
from onthedot.operations.failures import FailureGroup
from onthedot.operations.limits import LimitInfo
from onthedot.operations.schedule_info import ScheduleInfo
from onthedot.operations.schedule_preview import PlannedRun
from onthedot.operations.series import SeriesData
from onthedot.operations.sources import SourceInfo
from onthedot.operations.task_queries import TaskFilter
from onthedot.operations.workers import WorkerInfo
from tests.support.source_files import ROOT, syntax_tree

PUBLIC = {name: getattr(onthedot, name) for name in onthedot.__all__}
PUBLIC |= {f"events.{name}": getattr(events, name) for name in events.__all__}
PUBLIC |= {f"mq.{name}": getattr(mq, name) for name in mq.__all__}
PUBLIC |= {f"testing.{name}": getattr(testing, name) for name in testing.__all__}
PUBLIC |= {f"integrations.django.{name}": getattr(django, name) for name in django.__all__}
PUBLIC |= {f"integrations.fastapi.{name}": getattr(fastapi, name) for name in fastapi.__all__}
PUBLIC |= {f"integrations.prefect.{name}": getattr(prefect, name) for name in prefect.__all__}
PUBLIC |= {f"integrations.prometheus.{name}": getattr(prometheus, name) for name in prometheus.__all__}
PUBLIC |= {f"integrations.testing.{name}": getattr(web_testing, name) for name in web_testing.__all__}
"""Names that users import."""

REACHED = [
    AddOptions, AppOperations, AppOutbox, BatchArguments, Batches,
    Caps, Enqueuer, EventFilter, LimitChange, NamedTask, PlanRange, ScheduledFunction, ScheduleOptions,
    Schedules, StreamEnqueuer, SyncTaskContext, TaskFilter,
]  # fmt: skip
"""Types that public names take and return, under names that are not exported."""

TWINS = [
    (AppOperations, SyncOperations),
    (AppOutbox, SyncAppOutbox),
    (Batches, SyncBatches),
    (onthedot.Batch, onthedot.SyncBatch),
    (Schedules, SyncSchedules),
    (testing.TestApp, testing.SyncTestApp),
]
"""Classes for sync code, which are described by those for async code."""

FOR_THE_LIBRARY = {
    "AgentRegistry": ("listen",),
    "Call": ("check_single", "decode_result", "origin", "related", "single_task"),
    "BatchPolicy": ("sizes",),
    "CronSchedule": ("in_zone",),
    "DailySchedule": ("in_zone",),
    "Group": ("check_single", "decode_result", "origin", "related", "single_task"),
    "IntervalSchedule": ("in_zone", "with_anchor"),
    "ManualClock": ("call_later", "wall_clock_jump"),
    "OnceSchedule": ("in_zone",),
    "Processes": ("close", "run"),
    "ResumeHandle": ("complete",),
    "TaskConsumerRegistry": ("watch",),
}
"""Methods of public classes that other packages of the library call. The reference leaves them out."""

DESCRIPTION = r"\b{name}(?:, \w+)*: +\S"
"""Of a parameter: in the section ``Args:``, or in a sentence such as ``uuids: their ids.``"""
OWN = ("self", "cls")


@cache
def pages() -> str:
    return "\n".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_reference_has_every_public_name(name: str) -> None:
    assert re.search(rf"^::: onthedot\.{re.escape(name)}$", pages(), re.MULTILINE)


def subjects() -> dict[str, Any]:
    return {**PUBLIC, **{each.__name__: each for each in REACHED}}


@pytest.mark.parametrize("name", sorted(subjects()))
def test_every_parameter_is_described(name: str) -> None:
    assert sorted(missing(subjects()[name])) == []


def missing(subject: Any) -> Iterator[str]:
    if is_typeddict(subject):
        yield from sorted(subject.__annotations__.keys() - attribute_docs(subject))
        return
    if not isinstance(subject, type):
        yield from missing_of(subject, inspect.getdoc(subject))
        return
    if inspect.isfunction(subject.__init__) and not made_by_the_library(subject):
        owner = next(base for base in subject.__mro__ if "__init__" in vars(base))
        yield from missing_of(subject.__init__, inspect.getdoc(owner), attribute_docs(subject))
    for member, value in inspect.getmembers(subject, is_method):
        if is_for_users(subject, member) and defined_here(subject, member):
            documented = inspect.getdoc(value)
            if not documented:
                yield f"{member}()"
            yield from (f"{member}({name})" for name in missing_of(value, documented))


def is_method(value: object) -> bool:
    return inspect.isfunction(value) or inspect.ismethod(value)


def is_for_users(subject: type, member: str) -> bool:
    return not member.startswith("_") and member not in FOR_THE_LIBRARY.get(subject.__name__, ())


def defined_here(subject: type, member: str) -> bool:
    """Not of the standard library, as the methods of an exception or an enum are."""
    owner = next(base for base in subject.__mro__ if member in vars(base))
    return owner.__module__.startswith("onthedot")


def made_by_the_library(subject: type) -> bool:
    """Its constructor is not for users. A page of the reference has the fields of a record in a table."""
    return subject in (
        AppOperations, AppOutbox, Batches, events.ResumeHandle, onthedot.Batch, onthedot.SyncBatch, prefect.Resumable,
        Call, onthedot.Group, onthedot.Takes, onthedot.FlowHandle, onthedot.AsyncFlowHandle, Enqueuer,
        NamedTask, ScheduledFunction, Schedules, onthedot.TaskFunction, onthedot.StreamFunction,
        onthedot.StreamHandle, onthedot.AsyncStreamHandle, StreamEnqueuer,
        onthedot.TaskHandle, onthedot.AsyncTaskHandle, onthedot.TaskContext, SyncTaskContext, Explanation,
    ) or issubclass(subject, onthedot.TaskState)  # fmt: skip


def missing_of(function: Any, text: str | None, described: set[str] = frozenset()) -> Iterator[str]:
    for name, parameter in inspect.signature(function).parameters.items():
        is_of_the_user = str(parameter.annotation).startswith(("P.", "Q."))  # the parameters of the user's function
        if name in OWN or name in described or name.startswith("_") or is_of_the_user:
            continue
        if not re.search(DESCRIPTION.format(name=name), text or ""):
            yield name


def attribute_docs(subject: type) -> set[str]:
    """Fields that have a docstring below them, also in the base classes."""
    names: set[str] = set()
    for base in subject.__mro__[:-1]:
        if base.__module__.startswith("onthedot") and is_class_in_file(base):
            names |= set(documented_fields(base))
    return names


def is_class_in_file(subject: type) -> bool:
    return isinstance(getattr(inspect.getmodule(subject), "__file__", None), str)


def documented_fields(subject: type) -> Iterator[str]:
    tree = syntax_tree(Path(inspect.getfile(subject)))
    (found,) = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == subject.__name__]
    for field, below in zip(found.body, found.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str())):
                yield name


@pytest.mark.parametrize(("described", "twin"), TWINS)
def test_sync_class_has_the_methods_of_the_async_class(described: type, twin: type) -> None:
    for name, value in inspect.getmembers(twin, inspect.isfunction):
        if not name.startswith("_"):
            ours = list(inspect.signature(value).parameters)
            owner = described if hasattr(described, name) else onthedot.App  # app.sync.batch is app.batch
            assert ours == list(inspect.signature(getattr(owner, name)).parameters), name


RECORDS = {
    "operations": [FailureGroup, SourceInfo, LimitInfo, WorkerInfo, SeriesData],
    "schedules": [ScheduleInfo, PlannedRun],
    "handles": [Explanation],
}
"""Records whose fields a page of the reference describes in a table."""


@pytest.mark.parametrize(("page", "record"), [(page, record) for page, found in RECORDS.items() for record in found])
def test_table_has_every_field_of_a_record(page: str, record: type) -> None:
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text("utf-8")
    table = re.split(rf"^(?:### |::: .*\.){record.__name__}$", text, flags=re.MULTILINE)[1].partition("\n#")[0]
    names = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
    assert {field.name for field in fields(record)} <= names
