"""The text format of Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from onthedot.model.figures import BUCKETS, Figures, HistogramSample, Metric, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS: tuple[float, ...] = tuple(2**power / 1000 for power in range(BUCKETS))
"""Upper bounds of the buckets of a histogram, in seconds."""

_BOUND_TEXTS = (*map(repr, BOUNDS), "+Inf")
_BOUND_LABELS = tuple(f'le="{text}"' for text in _BOUND_TEXTS)
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics_text(metrics: Iterable[Metric], figures: Figures) -> str:
    """The samples of these metrics, in their order; a metric without a sample has no line.

    >>> tasks = Metric("tasks_total", "counter", "Tasks that have ended.", ("source",))
    >>> print(metrics_text([tasks], Figures([Sample("tasks_total", ("email",), 3)])), end="")
    # HELP tasks_total Tasks that have ended.
    # TYPE tasks_total counter
    tasks_total{source="email"} 3
    """
    samples: defaultdict[str, list[Sample | HistogramSample]] = defaultdict(list)
    for value in figures.samples:
        samples[value.metric].append(value)
    for histogram in figures.histograms:
        samples[histogram.metric].append(histogram)
    lines: list[str] = []
    for metric in metrics:
        if metric.name in samples:
            lines.append(f"# HELP {metric.name} {_help(metric.help)}")
            lines.append(f"# TYPE {metric.name} {metric.type}")
            for sample in sorted(samples[metric.name], key=lambda sample: sample.labels):
                lines += _lines(metric, sample)
    return "".join(f"{line}\n" for line in lines)


def cumulative(counts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The buckets as Prometheus has them: each includes those below it.

    >>> list(cumulative([1, 2] + [0] * 21 + [4]))[:2], list(cumulative([1, 2] + [0] * 21 + [4]))[-1]
    ([('0.001', 1), ('0.002', 3)], ('+Inf', 7))
    """
    reached = 0
    for bound, count in zip(_BOUND_TEXTS, counts, strict=True):
        reached += count
        yield bound, reached


def _lines(metric: Metric, sample: Sample | HistogramSample) -> Iterator[str]:
    pairs = zip(metric.labels, sample.labels, strict=True)
    labels = ",".join([f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs])
    braced = f"{{{labels}}}" if labels else ""
    if isinstance(sample, Sample):
        yield f"{metric.name}{braced} {_number(sample.value)}"
        return
    begin = f"{metric.name}_bucket{{{labels}{',' if labels else ''}"
    reached = 0
    for bound, count in zip(_BOUND_LABELS, sample.counts, strict=True):
        reached += count
        yield f"{begin}{bound}}} {reached}"
    yield f"{metric.name}_sum{braced} {_number(sample.total)}"
    yield f"{metric.name}_count{braced} {reached}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
