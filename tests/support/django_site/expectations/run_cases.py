"""Tasks that a worker of this process runs."""

import threading
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from django.contrib.auth.models import Permission, User
from django.test import Client, SimpleTestCase, override_settings
from expectations import tasks
from expectations.base import WorkerTestCase, ended, recorded, unittest, wait_for
from shop.tasks import count_orders

from onthedot.errors import StoreUnavailable
from onthedot.integrations.django import get_app

ENQUEUED = "task_enqueued"


def of_worker(sent):
    return [name for name, *_ in sent if name != ENQUEUED]


def finished(sent):
    return [uuid for name, uuid, *_ in sent if name == "task_finished"]


class RunTest(WorkerTestCase):
    def test_sync_and_async_tasks_return_values(self):
        self.assertEqual(ended(tasks.add.enqueue(2, right=3)).return_value, 5)
        self.assertEqual(ended(tasks.echo.enqueue((1, 2), a={"b": []})).return_value, [[[1, 2]], {"a": {"b": []}}])
        rendered = ended(tasks.render.enqueue("scene"))
        self.assertRegex(rendered.return_value, r"^scene: \d+$")
        self.assertEqual((rendered.task.queue_name, rendered.task.priority), ("gpu", 33))
        self.assertLessEqual(rendered.enqueued_at, rendered.started_at)
        self.assertLessEqual(rendered.started_at, rendered.finished_at)
        self.assertEqual((rendered.attempts, rendered.last_attempted_at), (1, rendered.started_at))
        self.assertEqual(ended(tasks.render.using(queue_name="reports").enqueue("x")).status, "SUCCESSFUL")

    def test_task_runs_after_its_time(self):
        at = datetime.now(UTC) + timedelta(seconds=0.3)
        result = ended(tasks.add.using(run_after=at).enqueue(1))
        self.assertGreaterEqual(result.started_at, at.replace(microsecond=0))
        self.assertGreaterEqual(datetime.now(UTC), at)

    def test_failed_tasks_have_their_error(self):
        for task in (tasks.fail, tasks.fail_async):
            result = ended(task.enqueue("no such order"))
            self.assertEqual(result.status, "FAILED")
            (error,) = result.errors
            self.assertIs(error.exception_class, LookupError)
            self.assertIn("LookupError: no such order", error.traceback)
            self.assertEqual(len(result.worker_ids), 1)
            with self.assertRaisesRegex(ValueError, "failed"):
                _ = result.return_value

    def test_result_that_is_not_json_fails_the_task(self):
        result = ended(tasks.return_object.enqueue())
        self.assertEqual((result.status, result.errors[0].exception_class), ("FAILED", TypeError))

    def test_call_that_does_not_fit_the_function_fails_the_task(self):
        result = ended(tasks.add.enqueue(1, 2, 3))
        self.assertEqual((result.status, result.errors[0].exception_class), ("FAILED", TypeError))

    def test_errors_and_workers_of_all_attempts_are_kept(self):
        with recorded() as sent:
            result = ended(tasks.fail_twice.enqueue())
            wait_for(lambda: len(sent) == 5)
        self.assertEqual(result.return_value, [result.id, "RUNNING", 3, 2, 3])
        self.assertEqual([each.traceback.splitlines()[-1] for each in result.errors],
                         ["LookupError: attempt 1", "LookupError: attempt 2"])  # fmt: skip
        self.assertEqual((result.attempts, len(set(result.worker_ids))), (3, 1))
        self.assertLess(result.started_at, result.last_attempted_at)
        self.assertEqual(of_worker(sent), [*["task_started"] * 3, "task_finished"])

    def test_signals_are_sent_in_order_and_the_last_one_inside_the_handler(self):
        for task, args, end in ((tasks.add, (1,), ("SUCCESSFUL", None)), (tasks.render, ("x",), ("SUCCESSFUL", None)),
                                (tasks.fail, ("x",), ("FAILED", "LookupError")),
                                (tasks.fail_async, ("x",), ("FAILED", "LookupError"))):  # fmt: skip
            with self.subTest(task=task.name), recorded() as sent:
                result = ended(task.enqueue(*args))
                wait_for(lambda sent=sent: len(sent) == 3)
                enqueued = ("task_enqueued", result.id, "READY", None, "Backend")
                self.assertIn(enqueued, sent)  # perhaps after the start: the worker is notified by the add
                sent.remove(enqueued)
                self.assertEqual(sent, [
                    ("task_started", result.id, "RUNNING", None, "Backend"),
                    ("task_finished", result.id, *end, "Backend"),
                ])  # fmt: skip

    def test_task_is_finished_when_its_retries_are_used_up(self):
        with recorded() as sent:
            result = ended(tasks.fail_always.enqueue())
            wait_for(lambda: len(sent) == 4)
        self.assertEqual(of_worker(sent), ["task_started", "task_started", "task_finished"])
        self.assertEqual((result.attempts, len(result.errors)), (2, 2))

    def test_async_task_that_is_stopped_is_finished(self):
        for task, error in ((tasks.wait_too_long, "TaskTimeout"), (tasks.wait_for_ever, "TaskCancelled"),
                            (tasks.cancel_itself, "CancelledError")):  # fmt: skip
            with self.subTest(task=task.name), recorded() as sent:
                result = task.enqueue()

                def own(uuid=result.id, sent=sent):
                    return [(name, status) for name, task, status, *_ in sent if task == uuid and name != ENQUEUED]

                wait_for(own)
                if task is tasks.wait_for_ever:
                    self.assertEqual(self.app.sync.operations.cancel(result.id, reason="not needed"), 1)
                wait_for(lambda own=own: len(own()) == 2)
                self.assertEqual(own(), [("task_started", "RUNNING"), ("task_finished", "FAILED")])
                result = ended(result)
                self.assertEqual(result.status, "FAILED")
                self.assertIn(error, result.errors[-1].exception_class_path)

    def test_store_that_does_not_answer_before_a_retry_uses_up_no_retry(self):
        reader = self.app.sync
        read = type(reader).get
        failures = [StoreUnavailable("no answer")]

        def get(self, uuid):
            if failures and threading.current_thread() is not threading.main_thread():  # by the run, not by this test
                raise failures.pop()
            return read(self, uuid)

        with patch.object(type(reader), "get", get), recorded() as sent:
            result = ended(tasks.fail_always.enqueue())
            wait_for(lambda: result.id in finished(sent))
        self.assertEqual(failures, [])
        started = [name for name, uuid, *_ in sent if (name, uuid) == ("task_started", result.id)]
        self.assertEqual((len(started), finished(sent).count(result.id)), (2, 1))
        self.assertEqual([each.exception_class for each in result.errors], [LookupError, LookupError])

    def test_task_can_end_itself_by_a_control_error(self):
        result = ended(tasks.withdraw.enqueue())
        self.assertEqual((result.status, result.errors[-1].traceback), ("FAILED", "the order was withdrawn"))
        result = ended(tasks.ask_again.enqueue())
        self.assertEqual((result.status, result.attempts, len(result.errors)), ("FAILED", 4, 4))

    def test_context_has_the_running_task(self):
        result = ended(tasks.describe.enqueue("ann"))
        self.assertEqual(result.return_value, ["ann", 1, result.id, ["ann"]])

    def test_receiver_that_raises_does_not_change_the_end(self):
        from expectations.base import signals

        def receive(**_):
            raise RuntimeError("a defect of a receiver")

        for name in ("task_started", "task_finished"):
            getattr(signals, name).connect(receive)
        try:
            self.assertEqual(ended(tasks.add.enqueue(1)).status, "SUCCESSFUL")
        finally:
            for name in ("task_started", "task_finished"):
                getattr(signals, name).disconnect(receive)

    def test_app_runs_its_own_tasks_beside_those_of_django(self):
        self.assertEqual(tasks.plain.delay("x").result(timeout=40), "not of Django: x")


MEMORY = {"BACKEND": "onthedot.integrations.django.Backend", "QUEUES": [], "OPTIONS": {"STORE": "memory://"}}


@override_settings(TASKS={"default": MEMORY})
class MemoryTest(SimpleTestCase):
    """As the guide advises for tests of a project."""

    databases = {"default"}

    def test_task_runs_in_the_process_of_the_test(self):
        result = count_orders.enqueue()
        with get_app().background():
            get_app().handle(result.id).result(timeout=40)
        result.refresh()
        self.assertEqual(result.status, "SUCCESSFUL")


class AdminTest(unittest.TestCase):
    def test_admin_links_to_the_page_for_users_with_the_permission(self):
        permission = Permission.objects.get(codename="view_operatorspage")
        for name, permissions, status in (("ops", [permission], 302), ("other", [], 403)):
            user = User.objects.create_user(name, password=name, is_staff=True)
            user.user_permissions.set(permissions)
            client = Client()
            client.force_login(user)
            index = client.get("/admin/").content.decode()
            self.assertEqual("/admin/onthedot/operatorspage/" in index, status == 302)
            self.assertNotIn("/admin/onthedot/operatorspage/add/", index)
            answer = client.get("/admin/onthedot/operatorspage/")
            self.assertEqual(answer.status_code, status)
            self.assertEqual(answer.headers.get("Location"), "http://127.0.0.1:8123/" if status == 302 else None)
