"""The metrics of an app that runs inside another program, in the registry of that program.

``onthedot worker --health`` needs none of this. Elsewhere: ``pip install 'onthedot[metrics]'``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from onthedot.api.app import App
from onthedot.model.figures import HistogramSample, Metric, Sample
from onthedot.observability.meter import MAX_NAMES, Meter
from onthedot.observability.metrics import cumulative
from onthedot.observability.worker_metrics import METRICS

__all__ = ["Collector"]


class Collector:
    """Counts what the worker of an app does in this process: ``REGISTRY.register(Collector(app))``.

    Make it before the app is started. The metrics are those of a worker port, as far as they are counted: without
    slots, memory and the lag of agents.

    Args:
        app: The app whose worker runs in this process, by ``app.running()``, ``app.run()`` or a lifespan.
        max_sources: How many sources are kept apart; the others are ``source="…"``.

    >>> from onthedot import App
    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> registry.register(Collector(App("shop", store="memory://")))
    >>> registry.get_sample_value("onthedot_worker_turns_total")
    0
    """

    def __init__(self, app: App[Any], *, max_sources: int = MAX_NAMES) -> None:
        try:
            self._families: Any = import_module("prometheus_client.core")
        except ImportError as error:
            raise ImportError(
                "onthedot.integrations.prometheus needs prometheus-client: pip install 'onthedot[metrics]'"
            ) from error
        self._meter = Meter(max_sources)
        runtime = app.runtime
        runtime.use(replace(runtime.config, meter=self._meter))

    def describe(self) -> Iterable[object]:
        """Returns nothing: the registry does not collect when it registers, and the names are unique."""
        return ()

    def collect(self) -> Iterator[object]:
        """Yields the metrics that have samples; the registry calls it at a scrape."""
        figures = self._meter.figures()
        for metric in METRICS:
            values = [sample for sample in figures.samples if sample.metric == metric.name]
            histograms = [sample for sample in figures.histograms if sample.metric == metric.name]
            if values:
                yield self._family(metric, values)
            if histograms:
                yield self._histogram(metric, histograms)

    def _family(self, metric: Metric, samples: Iterable[Sample]) -> object:
        kinds = {"counter": self._families.CounterMetricFamily, "gauge": self._families.GaugeMetricFamily}
        family: Any = kinds[metric.type](metric.name, metric.help, labels=metric.labels)
        for sample in samples:
            family.add_metric(sample.labels, sample.value)
        return family

    def _histogram(self, metric: Metric, samples: Iterable[HistogramSample]) -> object:
        family: Any = self._families.HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for sample in samples:
            family.add_metric(sample.labels, list(cumulative(sample.counts)), sample.total)
        return family
