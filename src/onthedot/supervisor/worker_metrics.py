"""The metrics of a supervisor's processes, added up."""

from __future__ import annotations

import time
from typing import Protocol

from onthedot.model.figures import Figures, FigureSum, Metric
from onthedot.observability.metrics import metrics_text
from onthedot.observability.worker_metrics import METRICS, START_TIME
from onthedot.supervisor.process_figures import add_process_figures

_BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}


class Reporter(Protocol):
    """A process that reports its figures."""

    figures: Figures


class WorkerMetrics:
    """Keeps the counters of processes that have ended: a sum of counters never decreases."""

    def __init__(self) -> None:
        self._living: list[Reporter] = []
        self._ended = FigureSum(_BY_NAME)
        self._started_at = time.time()

    def add(self, process: Reporter) -> None:
        self._living.append(process)

    def remove(self, process: Reporter) -> None:
        """It has ended, and its last figures are known."""
        if process in self._living:
            self._living.remove(process)
            self._ended.add(process.figures, gauges=False)

    def text(self) -> str:
        """For Prometheus."""
        total = FigureSum(_BY_NAME)
        total.add(self._ended.figures())
        for process in self._living:
            total.add(process.figures)
        own = Figures([], [])
        add_process_figures(own)
        own.add(START_TIME, self._started_at)
        total.add(own)
        return metrics_text(METRICS, total.figures())
