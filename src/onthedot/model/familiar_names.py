"""Names that users know from Celery, RQ, arq, APScheduler, Huey, Dramatiq and Taskiq, and what to write here.

For error messages only: none of these names has an effect.
"""

from __future__ import annotations

from collections.abc import Mapping

OPTIONS: Mapping[str, str] = {
    # Celery
    "autoretry_for": "retry_on",
    "countdown": "after",
    "default_retry_delay": "backoff",
    "dont_autoretry_for": "reject_on",
    "eta": "at",
    "expires_in": "expires",
    "headers": "metadata",
    "ignore_result": "keep_result",
    "reject_on_worker_lost": "max_crashes",
    "result_expires": "keep_result",
    "retry_backoff": "backoff",
    "retry_backoff_max": "backoff",
    "retry_jitter": "backoff",
    "retry_kwargs": "max_retries",
    "soft_time_limit": "timeout",
    "task_id": "uuid",
    "throws": "reject_on",
    "time_limit": "timeout",
    # RQ
    "at_front": "priority",
    "description": "label",
    "failure_ttl": "keep_failed",
    "job_id": "uuid",
    "job_timeout": "timeout",
    "meta": "metadata",
    "result_ttl": "keep_result",
    "retry": "max_retries",
    "ttl": "expires",
    # arq
    "_defer_by": "after",
    "_defer_until": "at",
    "_expires": "expires",
    "_job_id": "uuid",
    "max_tries": "max_retries",
    # APScheduler
    "id": "uuid",
    "max_instances": "concurrency",
    "next_run_time": "at",
    "replace_existing": "on_conflict",
    "run_date": "at",
    "trigger": "schedule",
    # Huey, Dramatiq, Taskiq
    "actor_name": "name",
    "delay": "after",
    "max_age": "expires",
    "max_backoff": "backoff",
    "min_backoff": "backoff",
    "retries": "max_retries",
    "retry_delay": "backoff",
    "task_name": "name",
}
"""Options of others, with ours."""

_QUEUE = "a source has no other queue: `onthedot worker --only 'email.*'` runs some of them"
_SPAWN = "current_task().spawn(next.s(…)) adds a task in the step in which this one succeeds"
ADVICE: Mapping[str, str] = {
    "_queue_name": _QUEUE,
    "acks_late": "leave it out: a task is always settled after its run",
    "args": "pass the arguments to delay(…) or enqueue(…)",
    "base": "@app.around adds middleware",
    "bind": "leave it out: current_task() returns the running task",
    "coalesce": "a schedule has catch_up='latest', 'all' or 'none'",
    "compression": "leave it out: arguments are JSON of at most 1 MiB, see App(caps=…)",
    "depends_on": _SPAWN,
    "exchange": _QUEUE,
    "jitter": "a schedule has jitter=…, as in CronSchedule('0 3 * * *', jitter=60); backoff has its own",
    "kwargs": "pass the arguments to delay(…) or enqueue(…)",
    "link": _SPAWN,
    "link_error": "@app.around sees the error of a run; app.find(state='failed') lists failed tasks",
    "misfire_grace_time": "a schedule has grace=…, as in CronSchedule('0 3 * * *', grace=60)",
    "on_failure": "@app.around sees the error of a run; app.find(state='failed') lists failed tasks",
    "on_success": _SPAWN,
    "queue": _QUEUE,
    "queue_name": _QUEUE,
    "routing_key": _QUEUE,
    "serializer": "leave it out: arguments are JSON, by the annotations of the function",
    "store_results": "leave it out: results are kept for keep_result=…, 24 hours by default",
    "track_started": "leave it out: handle.state() returns 'running' without it",
}
"""Options of others that are no option here."""

FUNCTION: Mapping[str, str] = {
    "apply": "call the function: f(…)",
    "apply_async": "write f.delay(…), or f.options(after=…, priority=…).delay(…)",
    "AsyncResult": "write f.handle(uuid), or f.ahandle(uuid) in async code",
    "call_local": "call the function: f(…)",
    "chunks": "write f.delay_many([…])",
    "kicker": "write f.options(…)",
    "kiq": "write await f.enqueue(…)",
    "map": "write f.delay_many([…])",
    "request": "write current_task() inside of the task",
    "retry": "write raise Retry(after=…) inside of the task",
    "schedule": "write f.options(at=…).delay(…), or @app.task(schedule=…)",
    "send": "write f.delay(…)",
    "send_with_options": "write f.options(…).delay(…)",
    "si": "write f.s(…): in a | f.s(…) it gets no result",
    "signature": "write f.s(…)",
    "starmap": "write f.delay_many([…])",
    "subtask": "write f.s(…)",
    "update_state": "write current_task().progress(done, total) inside of the task",
}
"""Attributes of a task function of others."""

CALL: Mapping[str, str] = {
    "apply_async": "write call.delay(), and options before it: f.options(after=…).s(…)",
    "clone": "write f.s(…) again: a call is immutable",
    "get": "write call.delay().result(timeout=…)",
    "link": "write call | f",
    "link_error": "write call.on_failure(f)",
    "on_error": "write call.on_failure(f)",
    "options": "options come before the arguments: f.options(…).s(…)",
    "s": "it is a call already: write call | f, or call.delay()",
    "set": "options come before the arguments: f.options(…).s(…)",
}
"""Attributes of a signature of others."""

SCHEDULED: Mapping[str, str] = dict.fromkeys(
    ("apply_async", "delay", "delay_many", "enqueue", "enqueue_many", "options", "s"),
    "it runs only on schedule: @app.task(schedule=…) declares a function that can also be added",
)
"""Attributes of a task function that a function with @app.schedule has not."""

HANDLE: Mapping[str, str] = {
    "abort": "write handle.cancel()",
    "failed": "write handle.state() == 'failed'",
    "forget": "leave it out: a result is kept for keep_result=…",
    "get": "write handle.result(timeout=…)",
    "get_id": "write handle.uuid",
    "get_status": "write handle.state()",
    "id": "write handle.uuid",
    "is_finished": "write handle.done()",
    "is_ready": "write handle.done()",
    "job_id": "write handle.uuid",
    "join": "write handle.result(timeout=…)",
    "meta": "write handle.info().metadata",
    "ready": "write handle.done()",
    "return_value": "write handle.result()",
    "result_info": "write handle.info()",
    "revoke": "write handle.cancel()",
    "status": "write handle.state()",
    "successful": "write handle.state() == 'succeeded'",
    "task_id": "write handle.uuid",
    "traceback": "write handle.info().error",
    "wait": "write handle.result(timeout=…)",
    "wait_result": "write handle.result(timeout=…)",
}
"""Attributes of a result of others."""

SCHEDULE: Mapping[str, str] = {
    "args": "pass the arguments to the call: f.s(…)",
    "coalesce": "it is catch_up=… here",
    "end_date": "it is end=… here",
    "id": "the first argument is the name of the schedule",
    "kwargs": "pass the arguments to the call: f.s(…)",
    "max_instances": "it is overlap=… here: 'skip', 'allow' or 'queue'",
    "misfire_grace_time": "it is grace=… here",
    "next_run_time": "it is start=… here",
    "replace_existing": "leave it out: put() replaces a schedule of the same name",
    "start_date": "it is start=… here",
    "timezone": "it is tz=… here",
}
"""Options of a schedule of others, in ``app.schedules.put``."""

APP: Mapping[str, str] = {
    "add_job": "write f.options(at=…).delay(…), or await app.schedules.put(name, f.s(…), rule)",
    "add_periodic_task": "write @app.schedule(…), or await app.schedules.put(name, f.s(…), rule)",
    "AsyncResult": "write app.handle(uuid), or app.ahandle(uuid) in async code",
    "autodiscover_tasks": "write App(include=['shop.mail', …])",
    "conf": "settings are parameters of App(…)",
    "config_from_object": "settings are parameters of App(…)",
    "control": "write await app.cancel(uuid), await app.pause(source); app.operations has more",
    "cron": "write @app.schedule('0 3 * * *')",
    "enqueue": "write await f.enqueue(…), or await app.named('f').enqueue(…)",
    "enqueue_at": "write f.options(at=…).delay(…)",
    "enqueue_in": "write f.options(after=…).delay(…)",
    "enqueue_job": "write await f.enqueue(…), or await app.named('f').enqueue(…)",
    "on_after_configure": "write @app.schedule(…)",
    "periodic_task": "write @app.schedule('0 3 * * *')",
    "scheduled_job": "write @app.schedule(…)",
    "send_task": "write app.named('f').delay(…)",
    "worker_main": "write app.run(), or `onthedot worker` in a shell",
}
"""Attributes of an app or scheduler of others."""


def missing_attribute(owner: object, name: str, familiar: Mapping[str, str]) -> AttributeError:
    """The error of ``__getattr__``, with what to write instead.

    >>> missing_attribute(object(), "kiq", FUNCTION)
    AttributeError("'object' has no attribute 'kiq'; write await f.enqueue(…)")
    """
    text = f"{type(owner).__name__!r} has no attribute {name!r}"
    if name in familiar:
        text += f"; {familiar[name]}"
    return AttributeError(text, name=name, obj=owner)
