"""A worker in a thread of the test, and the signals that it sends."""

import sys
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from onthedot.integrations.django import get_worker_app
from onthedot.integrations.django.framework import TASKS as PACKAGE

signals: Any = import_module(f"{PACKAGE}.signals")
exceptions: Any = import_module(f"{PACKAGE}.exceptions")
SIGNALS = ("task_enqueued", "task_started", "task_finished")


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 40
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError("not within 40 s")
        time.sleep(0.005)
    return found


def ended(result: Any) -> Any:
    def has_ended() -> bool:
        result.refresh()
        return bool(result.is_finished)

    wait_for(has_ended)
    return result


@contextmanager
def recorded() -> Iterator[list[tuple[Any, ...]]]:
    """Signals as (name, id, status, type of the error that is being handled, sender)."""
    found: list[tuple[Any, ...]] = []
    receivers: list[tuple[Any, Any]] = []
    for name in SIGNALS:

        def receive(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
            error = sys.exc_info()[0]
            found.append((name, task_result.id, str(task_result.status), error and error.__name__, sender.__name__))

        getattr(signals, name).connect(receive)
        receivers.append((getattr(signals, name), receive))
    try:
        yield found
    finally:
        for signal, receive in receivers:
            signal.disconnect(receive)


class WorkerTestCase(unittest.TestCase):
    """A worker runs while its tests do."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.app = get_worker_app("default")
        cls.enterClassContext(cls.app.background())
