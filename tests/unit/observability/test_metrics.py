"""The text of metrics, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onthedot.model.figures import BUCKETS, Figures, HistogramSample, Metric
from onthedot.model.source_figures import Histogram
from onthedot.observability.metrics import BOUNDS, metrics_text
from onthedot.observability.worker_metrics import METRICS
from onthedot.operations.fleet_metrics import FLEET_METRICS
from tests.support.services.promtool import metric_problems

parser = pytest.importorskip("prometheus_client.parser")

SEEN = Metric("seen_total", "counter", 'Back\\slash and "quotes"\nin two lines.', ("source", "state"))
TOOK = Metric("took_seconds", "histogram", "Durations.", ("source",))
FREE = Metric("free", "gauge", "Free.")


def families(text: str) -> dict[str, object]:
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def test_every_label_value_survives_the_parser() -> None:
    strange = 'a "b"\\c\nd=}{,…\u2028é'
    figures = Figures([], [])
    figures.add(SEEN, 3, strange, "ok")
    figures.add(SEEN, 2.5, "", "ok")
    found = families(metrics_text([SEEN], figures))["seen"]
    assert found.documentation == SEEN.help
    assert found.type == "counter"
    assert {(each.labels["source"], each.value) for each in found.samples} == {(strange, 3.0), ("", 2.5)}


def test_histogram_is_cumulative_and_has_sum_and_count() -> None:
    histogram = Histogram()
    for ms in (0.5, 1, 3, 10_000_000):
        histogram.observe(ms)
    found = families(metrics_text([TOOK], Figures([], [histogram.sample(TOOK, "email")])))["took_seconds"]
    buckets = {each.labels["le"]: each.value for each in found.samples if each.name == "took_seconds_bucket"}
    assert [float(bound) for bound in buckets] == [*BOUNDS, float("inf")]
    assert (buckets["0.001"], buckets["0.002"], buckets["0.004"], buckets["+Inf"]) == (2, 2, 3, 4)
    others = {each.name: each.value for each in found.samples if "le" not in each.labels}
    assert others == {"took_seconds_sum": pytest.approx(10_000.0045), "took_seconds_count": 4}


def test_metric_without_samples_has_no_line() -> None:
    figures = Figures([], [])
    figures.add(FREE, 1)
    assert metrics_text([SEEN, FREE], figures) == "# HELP free Free.\n# TYPE free gauge\nfree 1\n"


def test_names_follow_the_conventions_of_prometheus() -> None:
    """As `promtool check metrics` demands: counters end with _total, others do not; every metric has a help text."""
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.type == "counter"), metric.name
        assert metric.help.endswith(".")
        assert not metric.name.endswith(("_bucket", "_count", "_sum", "_info"))
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_no_label_is_unbounded() -> None:
    """Names that code declares, topics and partitions of a bus, and closed sets; no uuid, host, key or argument."""
    declared = {"agent", "pool", "release", "source", "topic", "partition", "type"}
    closed = {"kind", "outcome", "state", "status", "succeeded"}
    assert {label for metric in METRICS for label in metric.labels} <= declared | closed


def page_with_all(metrics: Sequence[Metric]) -> str:
    """A sample of each, also of those that only some workers and stores have."""
    figures = Figures([], [])
    for metric in metrics:
        if metric.type == "histogram":
            figures.histograms.append(HistogramSample(metric.name, metric.labels, [1] * (BUCKETS + 1), 1.5))
        else:
            figures.add(metric, 1, *metric.labels)
    return metrics_text(metrics, figures)


@pytest.mark.once
@pytest.mark.parametrize("metrics", [METRICS, FLEET_METRICS], ids=["worker", "fleet"])
def test_promtool_accepts_every_metric(metrics: Sequence[Metric]) -> None:
    text = page_with_all(metrics)
    assert all(f"# TYPE {metric.name} " in text for metric in metrics)
    assert metric_problems(text) == ""


@pytest.mark.once
def test_promtool_would_find_a_wrong_name_and_a_missing_help_text() -> None:
    found = metric_problems(page_with_all([Metric("took_ms", "counter", "")]))
    assert "took_ms no help text" in found
    assert 'took_ms counter metrics should have "_total" suffix' in found
