"""Tasks that end in every way."""

import asyncio
import os
import time
from typing import Any

from django.db import connection
from django.tasks import task
from shop.models import Order

from onthedot import Cancel, Retry
from onthedot.integrations.django import get_app

app = get_app()


@task
def add(left: int, right: int = 0) -> int:
    return left + right


@task()
def echo(*args: Any, **kwargs: Any) -> Any:
    return [args, kwargs]


@task(queue_name="gpu", priority=33)
async def render(name: str) -> str:
    return f"{name}: {await Order.objects.acount()}"


@task
def fail(text: str) -> None:
    raise LookupError(text)


@task
async def fail_async(text: str) -> None:
    raise LookupError(text)


@task
def return_object() -> Any:
    return object()


@task(takes_context=True, options={"max_retries": 2, "backoff": 0})
def fail_twice(context: Any) -> list[Any]:
    if context.attempt < 3:
        raise LookupError(f"attempt {context.attempt}")
    known = context.task_result
    return [known.id, known.status, context.attempt, len(known.errors), len(known.worker_ids)]


@task(options={"max_retries": 1, "backoff": 0})
async def fail_always() -> None:
    raise LookupError("always")


@task(options={"timeout": 0.3, "max_retries": 0})
async def wait_too_long() -> None:
    await asyncio.sleep(60)


@task
async def wait_for_ever() -> None:
    await asyncio.sleep(60)


@task
async def cancel_itself() -> None:
    raise asyncio.CancelledError


@task
def ask_again() -> None:
    raise Retry(after=0)


@task
def withdraw() -> None:
    raise Cancel("the order was withdrawn")


@task(takes_context=True)
async def describe(context: Any, name: str) -> list[Any]:
    return [name, context.attempt, context.task_result.id, context.task_result.args]


@task
def connection_id() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@task
def sleep(folder: str) -> int:
    """The first run is killed; a later one finds its file."""
    started = os.path.join(folder, "started")  # noqa: PTH118
    if not os.path.exists(started):  # noqa: PTH110
        with open(started, "w") as file:  # noqa: PTH123
            file.write(str(os.getpid()))
        time.sleep(60)
    return os.getpid()


@app.task
def plain(name: str) -> str:
    return f"not of Django: {name}"
