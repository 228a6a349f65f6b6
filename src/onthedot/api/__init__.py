"""The public names: what ``from onthedot import …`` gives."""

from onthedot.api.app import App
from onthedot.api.batches import Batch, SyncBatch
from onthedot.api.flow_handles import AsyncFlowHandle, FlowHandle
from onthedot.api.functions import TaskFunction
from onthedot.api.handles import AsyncTaskHandle, TaskHandle, as_completed
from onthedot.api.scheduler import Scheduler, get_scheduler, get_scheduler_status, start_scheduler, stop_scheduler
from onthedot.api.stream_functions import StreamFunction
from onthedot.api.stream_handles import AsyncStreamHandle, StreamHandle
from onthedot.batches.parts import BatchResult, Part
from onthedot.batches.policy import BatchPolicy, Dedup, SizeTable
from onthedot.codec.task_failure import TaskFailure
from onthedot.definitions.consumers import BaseTaskConsumer, TaskConsumerRegistry
from onthedot.errors import (
    ArgumentError,
    BadEvent,
    BadLimit,
    BadSchedule,
    Cancel,
    DeclarationError,
    DuplicateTask,
    Expired,
    OnTheDotError,
    Reject,
    ResultExpired,
    ResultNotStored,
    Retry,
    SchedulerStateError,
    Snooze,
    SourceFrozen,
    StepChanged,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    StreamRestarted,
    TaskCancelled,
    TaskError,
    TaskFailed,
    TaskNotFound,
    TaskTimeout,
    WorkerDied,
)
from onthedot.executors.processes import Processes
from onthedot.flows.calls import Call, Takes
from onthedot.flows.groups import Group, group
from onthedot.model.context import TaskContext, current_task
from onthedot.model.limits import AtMost, Rate
from onthedot.model.options import TaskOptions
from onthedot.model.signals import Signal
from onthedot.model.streams import StreamEntry
from onthedot.model.task import Task, TaskInfo, TaskState
from onthedot.operations.batches import BatchProgress
from onthedot.operations.explain import Explanation
from onthedot.operations.flows import FlowProgress
from onthedot.operations.task_queries import TaskPage
from onthedot.schedules.rules import CronSchedule, DailySchedule, IntervalSchedule, OnceSchedule

__all__ = [
    "App",
    "ArgumentError",
    "AsyncFlowHandle",
    "AsyncStreamHandle",
    "AsyncTaskHandle",
    "AtMost",
    "BadEvent",
    "BadLimit",
    "BadSchedule",
    "BaseTaskConsumer",
    "Batch",
    "BatchPolicy",
    "BatchProgress",
    "BatchResult",
    "Call",
    "Cancel",
    "CronSchedule",
    "DailySchedule",
    "DeclarationError",
    "Dedup",
    "DuplicateTask",
    "Expired",
    "Explanation",
    "FlowHandle",
    "FlowProgress",
    "Group",
    "IntervalSchedule",
    "OnTheDotError",
    "OnceSchedule",
    "Part",
    "Processes",
    "Rate",
    "Reject",
    "ResultExpired",
    "ResultNotStored",
    "Retry",
    "Scheduler",
    "SchedulerStateError",
    "Signal",
    "SizeTable",
    "Snooze",
    "SourceFrozen",
    "StepChanged",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "StreamEntry",
    "StreamFunction",
    "StreamHandle",
    "StreamRestarted",
    "SyncBatch",
    "Takes",
    "Task",
    "TaskCancelled",
    "TaskConsumerRegistry",
    "TaskContext",
    "TaskError",
    "TaskFailed",
    "TaskFailure",
    "TaskFunction",
    "TaskHandle",
    "TaskInfo",
    "TaskNotFound",
    "TaskOptions",
    "TaskPage",
    "TaskState",
    "TaskTimeout",
    "WorkerDied",
    "as_completed",
    "current_task",
    "get_scheduler",
    "get_scheduler_status",
    "group",
    "start_scheduler",
    "stop_scheduler",
]
