"""Adding tasks and reading them, without a worker: what Django documents about a backend."""

import asyncio
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django.core.checks import run_checks
from django.db import transaction
from django.test import AsyncClient, override_settings
from expectations import tasks
from expectations.base import exceptions, recorded, unittest
from project import asgi

from onthedot.integrations.django import Backend, get_app
from onthedot.integrations.django.framework import DjangoTask, configured

SOON = timedelta(hours=1)
INVALID = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError


def entry(**options):
    return {"default": {"BACKEND": "onthedot.integrations.django.Backend", **options}}


def problems(**options):
    with override_settings(TASKS=entry(**options)):
        return sorted(each.id for each in run_checks() if each.id.startswith("onthedot"))


class EnqueueTest(unittest.TestCase):
    def test_backend_supports_everything(self):
        backend = configured["default"]
        self.assertIsInstance(backend, Backend)
        for feature in ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority"):
            self.assertTrue(getattr(backend, feature), feature)

    def test_result_of_enqueue_is_ready_and_is_read_again_by_its_id(self):
        result = tasks.echo.enqueue(1, (2, 3), name="ann", more={"a": [True, None]})
        again = tasks.echo.get_result(result.id)
        for each in (result, again):
            self.assertEqual(each.status, "READY")
            self.assertEqual(each.args, [1, [2, 3]])
            self.assertEqual(each.kwargs, {"name": "ann", "more": {"a": [True, None]}})
            self.assertEqual(each.task, tasks.echo)
            self.assertEqual((each.backend, each.errors, each.worker_ids, each.attempts), ("default", [], [], 0))
            self.assertEqual((each.started_at, each.finished_at, each.last_attempted_at), (None, None, None))
            self.assertIsNotNone(each.enqueued_at.tzinfo)
            self.assertFalse(each.is_finished)
            with self.assertRaisesRegex(ValueError, "not finished"):
                _ = each.return_value
        result.refresh()
        self.assertEqual(result, again)

    def test_async_calls_do_the_same(self):
        async def main():
            result = await tasks.add.aenqueue(2, right=3)
            again = await tasks.add.aget_result(result.id)
            await result.arefresh()
            self.assertEqual(again, result)
            with self.assertRaises(exceptions.TaskResultDoesNotExist):
                await tasks.add.aget_result("there-is-none")
            with self.assertRaises(exceptions.TaskResultMismatch):
                await tasks.echo.aget_result(result.id)

        asyncio.run(main())

    def test_unknown_id_and_task_of_another_function_are_errors(self):
        for unknown in ("there-is-none", "", "no id!"):
            with self.assertRaises(exceptions.TaskResultDoesNotExist):
                tasks.add.get_result(unknown)
        with self.assertRaises(exceptions.TaskResultMismatch):
            tasks.add.get_result(tasks.echo.enqueue().id)
        with self.assertRaisesRegex(exceptions.TaskResultMismatch, "'plain'"):
            tasks.add.get_result(tasks.plain.delay("x").uuid)

    def test_nothing_that_a_store_names_is_imported(self):
        uuid = get_app().named("antigravity.geohash").delay().uuid
        with self.assertRaisesRegex(exceptions.TaskResultMismatch, "antigravity"):
            configured["default"].get_result(uuid)
        self.assertNotIn("antigravity", sys.modules)

    def test_arguments_that_are_not_json_are_refused_before_anything_is_stored(self):
        before = len(get_app().sync.find().tasks)
        with self.assertRaises(TypeError):
            tasks.echo.enqueue(object())
        with self.assertRaises(TypeError):
            tasks.echo.enqueue(when=datetime.now(UTC))
        self.assertEqual(len(get_app().sync.find().tasks), before)

    def test_invalid_tasks_are_refused(self):
        for invalid in ({"priority": 101}, {"priority": -101}, {"queue_name": "nope"}, {"run_after": datetime.now()}):
            with self.assertRaises(INVALID, msg=invalid):
                tasks.add.using(**invalid)
        with self.assertRaisesRegex(INVALID, "module level"):
            DjangoTask(func=lambda: None)
        with self.assertRaisesRegex(INVALID, "context"):
            replace(tasks.add, takes_context=True)

    def test_priority_queue_and_time_are_stored_and_read_again(self):
        at = datetime.now(UTC).replace(microsecond=123456) + SOON
        for priority, stored in ((-100, 1), (-37, 4), (0, 5), (33, 7), (50, 8), (100, 10)):
            task = tasks.add.using(priority=priority, queue_name="gpu", run_after=at)
            result = task.enqueue(1)
            info = get_app().sync.get(result.id)
            self.assertEqual((info.source, info.priority), ("gpu:expectations.tasks.add", stored))
            self.assertEqual(info.schedule_at, at)
            again = tasks.add.get_result(result.id)
            self.assertEqual(again.task, task)
            self.assertEqual((again.task.priority, again.task.run_after, again.status), (priority, at, "READY"))

    def test_default_queue_has_no_prefix(self):
        self.assertEqual(get_app().sync.get(tasks.add.enqueue(1).id).source, "expectations.tasks.add")

    def test_enqueue_sends_its_signal_once(self):
        with recorded() as sent:
            first = tasks.add.enqueue(1)
            second = asyncio.run(tasks.add.aenqueue(1))
        self.assertEqual(sent, [("task_enqueued", each.id, "READY", None, "Backend") for each in (first, second)])

    def test_cancelled_task_is_failed(self):
        result = tasks.add.using(run_after=datetime.now(UTC) + SOON).enqueue(1)
        get_app().sync.cancel(result.id, reason="not needed")
        result.refresh()
        self.assertEqual((result.status, result.worker_ids), ("FAILED", []))
        (error,) = result.errors
        self.assertEqual((error.exception_class.__name__, error.traceback), ("TaskCancelled", "not needed"))
        with self.assertRaisesRegex(ValueError, "failed"):
            _ = result.return_value


class JoinTest(unittest.TestCase):
    """JOIN names the database; the outer test runs them on SQLite and on Postgres."""

    def test_task_is_stored_with_the_commit_and_its_signal_is_sent_then(self):
        with recorded() as sent:
            with transaction.atomic():
                order = tasks.Order.objects.create(customer="ann")
                result = tasks.add.enqueue(order.id)
                self.assertEqual(sent, [])
            self.assertEqual([each[:2] for each in sent], [("task_enqueued", result.id)])
        self.assertEqual(tasks.add.get_result(result.id).args, [order.id])

    def test_neither_is_stored_after_a_rollback(self):
        with recorded() as sent, self.assertRaises(ZeroDivisionError), transaction.atomic():
            order = tasks.Order.objects.create(customer="bob")
            result = tasks.add.enqueue(order.id)
            later = tasks.add.using(run_after=datetime.now(UTC) + SOON, priority=7).enqueue(order.id)
            _ = 1 / 0
        self.assertEqual(sent, [])
        self.assertFalse(tasks.Order.objects.filter(id=order.id).exists())
        for each in (result, later):
            with self.assertRaises(exceptions.TaskResultDoesNotExist):
                tasks.add.get_result(each.id)

    def test_savepoint_that_is_rolled_back_takes_its_task_with_it(self):
        with transaction.atomic():
            kept = tasks.add.enqueue(1)
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                lost = tasks.add.enqueue(2)
                _ = 1 / 0
        self.assertEqual(tasks.add.get_result(kept.id).args, [1])
        with self.assertRaises(exceptions.TaskResultDoesNotExist):
            tasks.add.get_result(lost.id)

    def test_task_outside_of_a_transaction_is_stored_at_once(self):
        self.assertEqual(tasks.add.get_result(tasks.add.enqueue(5).id).args, [5])


class ViewTest(unittest.TestCase):
    def test_views_of_the_example_enqueue_and_read_under_asgi(self):
        async def main():
            client = AsyncClient()
            created = await client.post("/orders?customer=ann")
            self.assertEqual(created.status_code, 202)
            shown = await client.get(f"/orders/{created.json()['task']}")
            self.assertEqual(shown.json(), {"status": "READY"})
            self.assertEqual((await client.get("/orders/there-is-none")).status_code, 404)

        asyncio.run(main())
        self.assertTrue(callable(asgi.application))


class SettingsTest(unittest.TestCase):
    def test_problems_of_the_settings_are_found_by_system_checks(self):
        self.assertEqual([each for each in run_checks() if each.id.startswith("onthedot")], [])
        self.assertEqual(problems(OPTIONS={"STROE": "sqlite:///x.db"}), ["onthedot.E001"])
        self.assertEqual(problems(QUEUES=["ok", "not ok"]), ["onthedot.E002"])
        self.assertEqual(problems(OPTIONS={"STORE": "mysql://x"}), ["onthedot.E003"])
        self.assertEqual(problems(OPTIONS={"NAME": "no name"}), ["onthedot.E003"])
        self.assertEqual(problems(OPTIONS={"DEFAULTS": {"max_retry": 3}}), ["onthedot.E003"])
        self.assertEqual(problems(OPTIONS={"JOIN": "other"}), ["onthedot.E004"])
        self.assertEqual(problems(OPTIONS={"JOIN": "default", "STORE": "redis://x"}), ["onthedot.E005"])
        self.assertEqual(problems(OPTIONS={"STORE": "memory://"}), ["onthedot.W001"])

    def test_message_of_a_check_suggests_the_option(self):
        with override_settings(TASKS=entry(OPTIONS={"STROE": "sqlite:///x.db"})):
            (found,) = [each for each in run_checks() if each.id == "onthedot.E001"]
        self.assertEqual(found.msg, "TASKS['default'] has no option 'STROE'; did you mean 'STORE'?")

    def test_other_settings_are_another_app_with_the_same_tasks(self):
        result = tasks.add.enqueue(1)
        with override_settings(TASKS=entry(QUEUES=[], OPTIONS={"STORE": "memory://", "NAME": "other"})):
            self.assertEqual(get_app().name, "other")
            other = tasks.add.using(queue_name="anything").enqueue(2)
            self.assertEqual(get_app().sync.get(other.id).source, "anything:expectations.tasks.add")
            with self.assertRaises(exceptions.TaskResultDoesNotExist):
                tasks.add.get_result(result.id)
        self.assertEqual(tasks.add.get_result(result.id).args, [1])
