"""``onthedot worker --health`` serves the metrics of its processes."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from collections.abc import Mapping

import pytest

from onthedot.observability.worker_metrics import METRICS
from onthedot.operations.fleet_metrics import FLEET_METRICS
from tests.support.services.ports import free_port
from tests.support.services.promtool import metric_problems
from tests.support.waits import wait_until
from tests.unit.cli.conftest import Shop

parser = pytest.importorskip("prometheus_client.parser")
pytestmark = pytest.mark.once

Scrape = Mapping[tuple[str, tuple[str, ...]], float]


def page_text(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as page:
        assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(page.read().decode())


def scrape(port: int, path: str = "/metrics") -> Scrape:
    found = list(parser.text_string_to_metric_families(page_text(port, path)))
    return {(each.name, tuple(each.labels.values())): each.value for family in found for each in family.samples}


def test_worker_serves_what_its_processes_have_done(shop: Shop) -> None:
    port = free_port()
    worker = shop.worker("--health", f":{port}", "--processes", "2", env={"ONTHEDOT_RELEASE": "r7"})
    uuids = [shop.add("greet", name=str(number)) for number in range(20)]
    failing = shop.add("fail", order=1)
    for uuid in uuids:
        shop.result(uuid)
    wait_until(lambda: shop.state(failing) == "failed")
    succeeded = ("onthedot_worker_tasks_total", ("greet", "succeeded"))
    failed = ("onthedot_worker_tasks_total", ("fail", "failed"))
    wait_until(lambda: (scrape(port).get(succeeded), scrape(port).get(failed)) == (20, 1), 10)
    found = scrape(port)
    assert found["onthedot_worker_up", ("r7",)] == 2
    assert found["onthedot_worker_starts_total", ("greet",)] == 20
    assert found["onthedot_worker_queue_latency_seconds_count", ("greet",)] == 20
    assert found["onthedot_worker_task_duration_seconds_count", ("greet",)] == 20
    assert found["onthedot_worker_busy", ("async",)] == 0
    assert found["onthedot_worker_slots", ("async",)] > 0
    assert found["onthedot_worker_turns_total", ()] > 0
    known = {metric.name for metric in METRICS}
    suffixes = ("_bucket", "_sum", "_count")
    assert {name for name, _ in found if name not in known and not name.endswith(suffixes)} == set()
    shop.nap()
    wait_until(lambda: scrape(port)["onthedot_worker_busy", ("async",)] == 1, 10)
    worker.tell(signal.SIGHUP)  # all processes are replaced; no counter decreases
    shop.go()
    worker.until("all workers have been replaced")
    wait_until(lambda: scrape(port).get(("onthedot_worker_tasks_total", ("nap", "succeeded"))) == 1, 10)
    assert scrape(port)[succeeded] == 20
    wait_until(lambda: scrape(port)["onthedot_worker_up", ("r7",)] == 2, 10)


def test_worker_serves_the_metrics_of_its_store(shop: Shop) -> None:
    port = free_port()
    shop.add("unknown", name="x")
    shop.add("greet", after=3600, name="later")
    failing = shop.add("fail", order=1)
    shop.worker("--health", f":{port}")
    wait_until(lambda: shop.state(failing) == "failed")
    found = scrape(port, "/metrics/fleet")
    assert {name for name, _ in found} <= {metric.name for metric in FLEET_METRICS}
    assert found["onthedot_store_up", ()] == 1
    assert found["onthedot_workers", ()] == 1
    assert found["onthedot_queue_depth", ("unknown", "ready")] == 1
    assert found["onthedot_queue_depth", ("greet", "scheduled")] == 1
    assert found["onthedot_failed_tasks", ("fail",)] == 1
    assert found["onthedot_oldest_ready_seconds", ("unknown",)] > 0


def test_promtool_accepts_both_pages(shop: Shop) -> None:
    port = free_port()
    shop.worker("--health", f":{port}")
    shop.result(shop.add("greet", name="ann"))
    wait_until(lambda: ("onthedot_worker_tasks_total", ("greet", "succeeded")) in scrape(port))
    assert metric_problems(page_text(port, "/metrics")) == ""
    fleet = page_text(port, "/metrics/fleet")
    assert "onthedot_store_up 1" in fleet
    assert metric_problems(fleet) == ""


def test_memory_store_has_no_fleet(shop: Shop) -> None:
    port = free_port()
    shop.worker("--health", f":{port}", "--store", "memory://")
    with pytest.raises(urllib.error.HTTPError) as refused:
        scrape(port, "/metrics/fleet")
    with refused.value as answer:
        assert answer.code == 503
        assert b"memory://" in answer.read()
