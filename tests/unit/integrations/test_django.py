"""Django projects with their own processes: Django 6.1, and Django 5.2 with django-tasks."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg.conninfo
import pytest

from tests.support.django_site.project import EXAMPLE, DjangoProject, make_project
from tests.support.services.django_environment import PACKAGES, ROOT, Release
from tests.support.services.ports import free_port
from tests.support.services.postgres import Service
from tests.support.services.programs import Missing, give_up
from tests.support.waits import SOON, wait_until

pytestmark = pytest.mark.once


GUIDE = ROOT / "docs" / "how-to" / "django.md"
SHOWN = ["shop/tasks.py", "shop/views.py"]


@pytest.mark.parametrize("name", SHOWN)
def test_guide_shows_the_files_of_the_example(name: str) -> None:
    assert f"```python\n{(EXAMPLE / name).read_text('utf-8')}```" in GUIDE.read_text("utf-8")


def test_guide_shows_the_setting_of_the_example() -> None:
    _, mark, setting = (EXAMPLE / "project" / "settings.py").read_text("utf-8").partition("TASKS = {")
    assert f"```python\n{mark}{setting}```" in GUIDE.read_text("utf-8")


@cache
def project_of(release: Release, folder: Path) -> DjangoProject:
    try:
        return make_project(folder / release, release)
    except Missing as missing:
        give_up(missing)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("django")


@pytest.fixture(params=list(PACKAGES))
def project(request: pytest.FixtureRequest, folder: Path) -> DjangoProject:
    """Of each release, made once."""
    return project_of(request.param, folder)


@pytest.fixture
def newest(folder: Path) -> DjangoProject:
    return project_of("6.1", folder)


def test_project_gets_what_django_documents(project: DjangoProject) -> None:
    """Of the API of a backend, and of its tasks in a worker."""
    printed = project.check("run_cases.py", "expectations.enqueue_cases", "expectations.run_cases")
    assert "OK" in printed.splitlines()[-1], printed


def test_task_of_a_killed_worker_runs_again_and_any_process_reads_its_result(
    newest: DjangoProject, tmp_path: Path
) -> None:
    """Also the example: its command waits in a process of its own for the worker of another."""
    with newest.running("manage.py", "onthedot", "worker", ready="worker ready"):
        uuid = newest.evaluate(f"answer = tasks.sleep.enqueue({str(tmp_path)!r}).id")
        started = tmp_path / "started"
        wait_until(lambda: started.exists() and started.read_text())
        killed = int(started.read_text())
        os.kill(killed, signal.SIGKILL)
        assert newest.check("manage.py", "order", "ann").strip().endswith("is paid")
        pid, ids, errors = newest.evaluate(
            "from expectations.base import ended",
            f"result = ended(tasks.sleep.get_result({uuid!r}))",
            "answer = [result.return_value, result.worker_ids, len(result.errors)]",
        )
        assert pid != killed
        assert (len(ids), ids[0], errors) == (2, "unknown", 0)
        listed = json.loads(newest.check("manage.py", "onthedot", "task", "list", "--json", "--state", "succeeded"))
        assert uuid in [task["uuid"] for task in listed["tasks"]]


def request(port: int, method: str, path: str) -> tuple[int, Any]:
    """On a connection of its own, so that any process of the server may answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_order_over_http_runs_in_the_worker_and_any_process_of_the_server_reads_its_result(
    newest: DjangoProject,
) -> None:
    """The example under uvicorn with two processes, and its worker."""
    port = free_port()
    server = ("-m", "uvicorn", "project.asgi:application", "--port", str(port), "--workers", "2")
    with (
        newest.running("manage.py", "onthedot", "worker", ready="worker ready"),
        newest.running(*server, ready="Application startup complete", times=2) as printed,
    ):
        orders: dict[str, int] = {}
        for number in range(10):
            status, placed = request(port, "POST", f"/orders?customer=u{number}")
            assert status == 202
            orders[placed["task"]] = placed["order"]
        for uuid, order in orders.items():
            wait_until(lambda uuid=uuid: request(port, "GET", f"/orders/{uuid}")[1]["status"] == "SUCCESSFUL")
            results = [request(port, "GET", f"/orders/{uuid}") for _ in range(4)]
            assert results == [(200, {"status": "SUCCESSFUL", "result": f"order {order} is paid"})] * 4
        assert request(port, "GET", "/orders/unknown") == (404, {"error": "there is no such task"})
    text = printed.read_text("utf-8")
    assert len(set(re.findall(r"Started server process \[(\d+)\]", text))) == 2
    assert "Traceback" not in text, text


def test_command_stops_at_wrong_settings(newest: DjangoProject) -> None:
    wrong = DjangoProject(newest.folder, newest.python, {"TEST_STORE": "redis://localhost/0"})
    done = wrong.run("manage.py", "onthedot", "worker")
    assert (done.returncode, "onthedot.E005" in done.stderr) == (1, True), done.stderr
    assert "worker" in newest.check("manage.py", "onthedot", "--help")


def test_command_shares_the_folders_of_the_project_and_no_installed_packages(newest: DjangoProject) -> None:
    """Also folders below the prefix of Python, as /usr/src/app is with the Python of Debian."""
    prefix = newest.python.parent.parent
    given = [str(ROOT / "src"), str(prefix / "given")]
    project = DjangoProject(newest.folder, newest.python, {"PYTHONPATH": os.pathsep.join(given)})
    shared = project.evaluate(
        "import os, sys",
        "from onthedot.integrations.django.management.commands.onthedot import Command",
        f"sys.path.insert(0, {str(prefix / 'app')!r})",
        "try:",
        "    Command().run_from_argv(['manage.py', 'onthedot', '--help'])",
        "except SystemExit:",
        "    answer = os.environ['PYTHONPATH'].split(os.pathsep)",
    )
    assert shared == [str(prefix / "app"), str(newest.folder), *given]


@pytest.fixture
def postgres_project(postgres: Service, tmp_path: Path) -> Iterator[DjangoProject]:
    """On Django 6.1, with a database of its own that is also the store."""
    with postgres.database() as url:
        known = psycopg.conninfo.conninfo_to_dict(url)
        fields = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
        database = {ours: str(known.get(theirs, "")) for ours, theirs in fields.items()}
        try:
            yield make_project(tmp_path / "project", "6.1", TEST_STORE=url, TEST_DATABASE=json.dumps(database))
        except Missing as missing:
            give_up(missing)


def test_tasks_join_transactions_of_postgres_and_leave_no_connection(
    postgres_project: DjangoProject, postgres: Service
) -> None:
    postgres_project.check("run_cases.py", "expectations.enqueue_cases.JoinTest")
    name = urlsplit(postgres_project.settings["TEST_STORE"]).path.removeprefix("/")

    def connections() -> int:
        (row,) = postgres.ask("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", name)
        return int(row[0])

    with postgres_project.running("manage.py", "onthedot", "worker", "-c", "8", ready="worker ready"):
        postgres_project.evaluate(
            "from expectations.base import ended", "answer = ended(tasks.connection_id.enqueue()).status"
        )
        before = wait_until_steady(connections)
        statuses, most = postgres_project.evaluate(
            "from expectations.base import ended",
            "from django.db import connection, transaction",
            "with transaction.atomic():",
            "    results = [tasks.connection_id.enqueue() for _ in range(900)]",
            "    results += [tasks.render.enqueue(str(each)) for each in range(100)]",
            "def count():",
            "    with connection.cursor() as cursor:",
            "        cursor.execute('SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()')",
            "        return cursor.fetchone()[0]",
            "most = max(count() for each in results if ended(each))",
            "statuses = {str(each.status) for each in results}",
            "answer = [sorted(statuses), most]",
        )
        assert statuses == ["SUCCESSFUL"]
        assert most <= before + 8 + 1 + 4  # threads, the thread of async tasks, this program and its store
        wait_until(lambda: connections() <= before)


def wait_until_steady(connections: Callable[[], int]) -> int:
    """The number once the program that has ended has left."""
    seen = [connections()]

    def is_steady() -> bool:
        seen.append(connections())
        return len(seen) > 20 and len(set(seen[-20:])) == 1

    wait_until(is_steady)
    return seen[-1]
