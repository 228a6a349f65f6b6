"""Metrics in the registry of the user."""

from __future__ import annotations

import asyncio

import pytest

from onthedot import App, SchedulerStateError
from onthedot.integrations.prometheus import Collector
from onthedot.observability.worker_metrics import METRICS

prometheus_client = pytest.importorskip("prometheus_client")


def test_registry_has_what_the_worker_counts() -> None:
    app = App("shop", store="memory://")
    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector(app))

    @app.task
    async def greet(name: str) -> str:
        return name

    async def main() -> None:
        async with app.running():
            for handle in [await greet.enqueue(str(number)) for number in range(10)]:
                await handle.result(timeout=10)
            with pytest.raises(SchedulerStateError):
                Collector(app)

    asyncio.run(main())
    labels = {"source": "greet"}
    assert registry.get_sample_value("onthedot_worker_tasks_total", {**labels, "state": "succeeded"}) == 10
    assert registry.get_sample_value("onthedot_worker_queue_latency_seconds_count", labels) == 10
    seconds = registry.get_sample_value("onthedot_worker_task_duration_seconds_sum", labels)
    assert seconds is not None
    assert 0 < seconds < 100
    text = prometheus_client.generate_latest(registry).decode()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            name, kind = line.split()[2:]
            assert kind == next(metric.type for metric in METRICS if metric.name == name)
