"""Figures of tasks by source, as the series keep them: counts and sparse histograms that can be added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from onthedot.model.figures import BUCKETS, HistogramSample, Metric, Names

MAX_SOURCES = 100  # of one record; the others are one source, "…"
_UNITS = 32  # per ms: bin 0 ends at 1/32 ms, number 1 at 1/16 ms; from there a doubling has two bins
_COARSE = 5  # doublings below 1 ms
_COUNTS = ("started", "succeeded", "failed", "cancelled", "retried", "crashed", "rate_limited")
_HISTOGRAMS = ("latency", "duration", "lateness")


def bin_of(ms: float) -> int:
    """The histogram bin of a duration. An upper bound belongs to its bin.

    >>> [bin_of(ms) for ms in (0, 1 / 32, 1 / 16, 3 / 32, 1 / 8, 1, 1.5, 1.51, 2, 4)]
    [0, 0, 1, 2, 3, 9, 10, 11, 11, 13]
    """
    scaled = ms * _UNITS
    number = int(scaled)
    if number == scaled and number:
        number -= 1
    if number < 2:
        return number
    length = number.bit_length()
    return 2 * length - 2 + (number >> (length - 2) & 1)


def bounds_of(number: int) -> tuple[float, float]:
    """The lower and the upper bound of a bin, in ms.

    >>> bounds_of(0), bounds_of(1), bounds_of(10), bounds_of(11)
    ((0.0, 0.03125), (0.03125, 0.0625), (1.0, 1.5), (1.5, 2.0))
    """
    if number < 2:
        return number / _UNITS, (number + 1) / _UNITS
    length, half = divmod(number + 2, 2)
    step = 1 << (length - 2)
    lower = step * (2 + half)
    return lower / _UNITS, (lower + step) / _UNITS


class Histogram(Struct, array_like=True):
    """Durations by histogram bin. total: their sum, in ms."""

    total: float = 0.0
    counts: dict[int, int] = {}

    def observe(self, ms: float, weight: int = 1) -> None:
        """weight: how many durations it counts for."""
        number = bin_of(ms)
        self.counts[number] = self.counts.get(number, 0) + weight
        self.total += ms * weight

    def add(self, other: Histogram) -> None:
        self.total += other.total
        for number, count in other.counts.items():
            self.counts[number] = self.counts.get(number, 0) + count

    @property
    def number(self) -> int:
        return sum(self.counts.values())

    def percentile(self, percent: int) -> float | None:
        """The duration in ms below which so many percent are, within ±20 %; None without any.

        >>> histogram = Histogram()
        >>> for ms in range(1, 101):
        ...     histogram.observe(ms)
        >>> histogram.percentile(50), histogram.percentile(95)
        (54.857142857142854, 76.8)
        """
        rank = -(-self.number * percent // 100)
        for number in sorted(self.counts):
            rank -= self.counts[number]
            if rank <= 0:
                lower, upper = bounds_of(number)
                return 2 * lower * upper / (lower + upper)  # the same relative distance to both bounds
        return None

    def by_doublings(self) -> Sequence[int]:
        """The counts with the bounds 1 ms, 2 ms, 4 ms …, as metrics have them; the last are those above all bounds."""
        counts = [0] * (BUCKETS + 1)
        for number, count in self.counts.items():
            doubling = (number + 2) // 2 - _COARSE
            counts[min(max(0, doubling), BUCKETS)] += count
        return counts

    def sample(self, metric: Metric, *labels: str) -> HistogramSample:
        return HistogramSample(metric.name, labels, self.by_doublings(), self.total / 1000)


class SourceFigures(Struct, array_like=True):
    """Counts and times of the tasks of one source. New fields come last, so other versions can read it."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    crashed: int = 0  # runs whose worker died
    rate_limited: int = 0  # runs that were sent back by the other side, to be repeated later
    latency: Histogram = msgspec.field(default_factory=Histogram)
    duration: Histogram = msgspec.field(default_factory=Histogram)
    lateness: Histogram = msgspec.field(default_factory=Histogram)

    def add(self, other: SourceFigures) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _HISTOGRAMS:
            getattr(self, name).add(getattr(other, name))


class Depth(Struct, array_like=True, frozen=True):
    """Tasks of one source by state, at one moment; parked ones are ready."""

    ready: int = 0
    scheduled: int = 0
    running: int = 0
    waiting: int = 0
    failed: int = 0


class FigureRecord(Struct, omit_defaults=True):
    """The data of an entry: of one worker and minute, or of all workers (`FLEET`) and any span of time.

    sources: by name
    depth: by source, sampled once per minute; only in records of all workers
    writers: the ends of the ids of the workers whose records are in this one; a late write of them does not count
    until: of totals: the last minute that is in them, in ms
    """

    sources: dict[str, SourceFigures] = {}
    depth: dict[str, Depth] = {}
    writers: list[str] = []
    until: int = 0

    def add(self, sources: Mapping[str, SourceFigures]) -> None:
        """Sources above MAX_SOURCES share one name."""
        for name, figures in sources.items():
            is_apart = name in self.sources or len(self.sources) < MAX_SOURCES
            self.sources.setdefault(name if is_apart else Names.OTHERS, SourceFigures()).add(figures)


FLEET = "fleet"
"""The writer of entries that have the figures of all workers."""
_WRITER = 12  # characters of an id that are random

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(FigureRecord).decode


def writer_mark(writer: str) -> str:
    """How a record of all workers names one of them."""
    return writer[-_WRITER:]


def encode_record(record: FigureRecord, most: int) -> bytes:
    """The data of an entry, at most so many bytes: the smallest sources are added up as "…" if there are too many."""
    data = _encode(record)
    kept = len(record.sources)
    while len(data) > most and kept > 1:
        kept //= 2
        data = _encode(_reduced(record, kept))
    return data


def _reduced(record: FigureRecord, kept: int) -> FigureRecord:
    by_size = sorted(
        record.sources, key=lambda name: (name != Names.OTHERS, record.sources[name].started), reverse=True
    )
    names = set(by_size[:kept])
    others = SourceFigures()
    for name in by_size[kept:]:
        others.add(record.sources[name])
    sources = {name: figures for name, figures in record.sources.items() if name in names}
    depth = {name: each for name, each in record.depth.items() if name in names}
    return FigureRecord({**sources, Names.OTHERS: others}, depth, record.writers, record.until)


def decode_record(data: bytes) -> FigureRecord:
    """A record that cannot be read, of another version, is empty."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return FigureRecord()


def sum_sources(records: Iterable[FigureRecord], source: str | None = None) -> SourceFigures:
    """The figures of all sources, or of one, added up."""
    total = SourceFigures()
    for record in records:
        for name, figures in record.sources.items():
            if source is None or name == source:
                total.add(figures)
    return total
