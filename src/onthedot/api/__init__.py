"""The public names: what ``from onthedot import …`` gives."""

from onthedot.app import App
from onthedot.consumer import BaseTaskConsumer, TaskConsumerRegistry
from onthedot.context import TaskContext, current_task
from onthedot.errors import (
    ArgumentError,
    BadLimit,
    BadSchedule,
    Cancel,
    DeclarationError,
    DuplicateTask,
    OnTheDotError,
    Reject,
    ResultExpired,
    ResultNotStored,
    Retry,
    SchedulerStateError,
    Snooze,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TaskCancelled,
    TaskError,
    TaskFailed,
    TaskNotFound,
    TaskTimeout,
)
from onthedot.function import TaskFunction
from onthedot.handle import AsyncTaskHandle, TaskHandle, as_completed
from onthedot.limits import AtMost, Rate
from onthedot.options import TaskOptions
from onthedot.schedule import CronSchedule, DailySchedule, IntervalSchedule, OnceSchedule
from onthedot.scheduler import Scheduler, get_scheduler, get_scheduler_status, start_scheduler, stop_scheduler
from onthedot.task import Task, TaskState

__all__ = [
    "App",
    "ArgumentError",
    "AsyncTaskHandle",
    "AtMost",
    "BadLimit",
    "BadSchedule",
    "BaseTaskConsumer",
    "Cancel",
    "CronSchedule",
    "DailySchedule",
    "DeclarationError",
    "DuplicateTask",
    "IntervalSchedule",
    "OnTheDotError",
    "OnceSchedule",
    "Rate",
    "Reject",
    "ResultExpired",
    "ResultNotStored",
    "Retry",
    "Scheduler",
    "SchedulerStateError",
    "Snooze",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskCancelled",
    "TaskConsumerRegistry",
    "TaskContext",
    "TaskError",
    "TaskFailed",
    "TaskFunction",
    "TaskHandle",
    "TaskNotFound",
    "TaskOptions",
    "TaskState",
    "TaskTimeout",
    "as_completed",
    "current_task",
    "get_scheduler",
    "get_scheduler_status",
    "start_scheduler",
    "stop_scheduler",
]
