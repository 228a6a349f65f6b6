"""Sparse histograms against sorted samples; records add up and stay below their size."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given, strategies as st

from onthedot.model.figures import BUCKETS, Names
from onthedot.model.source_figures import (
    MAX_SOURCES,
    FigureRecord,
    Histogram,
    SourceFigures,
    bin_of,
    bounds_of,
    decode_record,
    encode_record,
    sum_sources,
)

durations = st.floats(1 / 16, 2**40, exclude_min=True)


def histogram_of(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    return histogram


@given(st.floats(0, 2**40))
def test_duration_is_between_the_bounds_of_its_bucket(ms: float) -> None:
    lower, upper = bounds_of(bin_of(ms))
    assert lower <= ms <= upper
    assert ms > lower or ms == 0


@given(st.integers(0, 120))
def test_buckets_have_no_gap_and_two_share_a_doubling(bucket: int) -> None:
    assert bounds_of(bucket)[1] == bounds_of(bucket + 1)[0]
    if bucket >= 2:
        assert bounds_of(bucket + 2)[0] == 2 * bounds_of(bucket)[0]


@given(st.lists(durations, min_size=1, max_size=200), st.sampled_from([1, 50, 95, 99, 100]))
def test_percentile_is_within_a_fifth_of_the_sample(values: list[float], percent: int) -> None:
    rank = -(-len(values) * percent // 100)
    expected = sorted(values)[rank - 1]
    found = histogram_of(values).percentile(percent)
    assert found is not None
    assert abs(found - expected) <= 0.2001 * expected


@given(st.lists(st.lists(durations, max_size=20), max_size=5))
def test_merged_histograms_are_the_histogram_of_all(parts: list[list[float]]) -> None:
    merged = Histogram()
    for part in parts:
        merged.add(histogram_of(part))
    expected = histogram_of([value for part in parts for value in part])
    assert merged.counts == expected.counts
    assert abs(merged.total - expected.total) <= 1e-6 * (1 + expected.total)


@given(st.lists(st.floats(0, 2**24), max_size=50))
def test_counts_by_doublings_are_those_of_exact_bounds(values: list[float]) -> None:
    bounds = [2.0**power for power in range(BUCKETS)]
    expected = [0] * (BUCKETS + 1)
    for value in values:
        expected[bisect_right(bounds, value) - (value in bounds)] += 1
    assert list(histogram_of(values).by_doublings()) == expected


def test_histogram_without_durations_has_no_percentile() -> None:
    assert Histogram().percentile(95) is None


def figures(started: int) -> SourceFigures:
    return SourceFigures(started, latency=Histogram(5.0 * started, dict.fromkeys(range(40), 1000)))


def test_sources_above_the_limit_share_one_name_and_the_sum_is_kept() -> None:
    record = FigureRecord()
    record.add({f"s{number}": SourceFigures(number) for number in range(150)})
    assert len(record.sources) == MAX_SOURCES + 1
    assert record.sources[Names.OTHERS].started == sum(range(100, 150))
    assert sum_sources([record]).started == sum(range(150))
    assert sum_sources([record], "s7").started == 7


def test_record_is_reduced_to_its_size_and_the_largest_sources_stay() -> None:
    record = FigureRecord({f"s{number}": figures(number) for number in range(100)})
    data = encode_record(record, 20_000)
    assert len(data) <= 20_000
    found = decode_record(data)
    assert "s99" in found.sources
    assert "s0" not in found.sources
    assert sum_sources([found]).started == sum(range(100))
    assert decode_record(encode_record(record, 10**6)) == record


def test_record_of_another_version_is_read_as_far_as_it_is_known() -> None:
    assert decode_record(b"not json") == FigureRecord()
    found = decode_record(b'{"sources": {"a": [3, 2]}, "later": 1}')
    assert found.sources["a"] == SourceFigures(3, 2)
