"""Figures: numbers about a process or a store, as plain values that can be sent and added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

BUCKETS = 23  # with a bound: bucket k has the durations up to 2**k ms, from 1 ms to 70 minutes
MetricType: TypeAlias = Literal["counter", "gauge", "histogram"]


class Metric(Struct, frozen=True):
    """The definition of a metric. largest: processes are compared, not added up."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    largest: bool = False


class Sample(Struct, frozen=True, array_like=True):
    """The value of a counter or a gauge. labels: values, in the order of the metric's labels."""

    metric: str
    labels: tuple[str, ...]
    value: float


class HistogramSample(Struct, frozen=True, array_like=True):
    """Durations by bucket; the last count has those above all bounds. total: seconds."""

    metric: str
    labels: tuple[str, ...]
    counts: Sequence[int]
    total: float


class Figures(Struct, omit_defaults=True):
    """The samples of one process at one time."""

    samples: list[Sample] = []
    histograms: list[HistogramSample] = []

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """labels: values, in the order of the metric's labels."""
        self.samples.append(Sample(metric.name, labels, value))


class Names:
    """The values of one label: the first `limit` are kept apart, the others are one value, so a label is bounded."""

    OTHERS = "…"

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        """
        >>> names = Names(1)
        >>> names.of("a"), names.of("b"), names.of("a")
        ('a', '…', 'a')
        """
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return self.OTHERS
        self._known.add(name)
        return name


class _Key(NamedTuple):
    metric: str
    labels: tuple[str, ...]


class FigureSum:
    """Adds the figures of several processes up. metrics: definitions by name; samples of unknown ones are left out."""

    def __init__(self, metrics: dict[str, Metric]) -> None:
        self._metrics = metrics
        self._values: dict[_Key, float] = {}
        self._counts: dict[_Key, list[int]] = {}
        self._totals: dict[_Key, float] = {}

    def add(self, figures: Figures, *, gauges: bool = True) -> None:
        """gauges: False for a process that has ended; its counters stay, so that no sum decreases."""
        for sample in figures.samples:
            metric = self._metrics.get(sample.metric)
            if metric is None or (metric.type == "gauge" and not gauges):
                continue
            key = _Key(sample.metric, sample.labels)
            before = self._values.get(key)
            if before is None:
                self._values[key] = sample.value
            elif metric.largest:
                self._values[key] = max(before, sample.value)
            else:
                self._values[key] = before + sample.value
        self._add_histograms(figures.histograms)

    def _add_histograms(self, histograms: Iterable[HistogramSample]) -> None:
        for sample in histograms:
            if sample.metric in self._metrics:
                key = _Key(sample.metric, sample.labels)
                counts = self._counts.get(key) or [0] * len(sample.counts)
                self._counts[key] = [ours + theirs for ours, theirs in zip(counts, sample.counts, strict=True)]
                self._totals[key] = self._totals.get(key, 0.0) + sample.total

    def figures(self) -> Figures:
        """The sums."""
        return Figures(
            [Sample(key.metric, key.labels, value) for key, value in self._values.items()],
            [HistogramSample(*key, counts, self._totals[key]) for key, counts in self._counts.items()],
        )
