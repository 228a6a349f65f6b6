"""The reference has every metric that is exported, and no other."""

from __future__ import annotations

import re

from onthedot.model.figures import Metric
from onthedot.observability.worker_metrics import METRICS
from onthedot.operations.fleet_metrics import FLEET_METRICS
from tests.support.source_files import ROOT

ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def described(section: str) -> list[Metric]:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = ROW.findall(text)
    return [Metric(name, kind, help_, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, help_ in rows]


def test_reference_has_every_metric_of_a_worker() -> None:
    exported = [Metric(each.name, each.type, each.help, each.labels) for each in METRICS]
    assert described("Worker port") == exported


def test_reference_has_every_metric_of_a_fleet() -> None:
    exported = [Metric(each.name, each.type, each.help, each.labels) for each in FLEET_METRICS]
    assert described("Fleet") == exported


def test_guide_names_only_metrics_that_exist() -> None:
    page = (ROOT / "docs" / "how-to" / "prometheus.md").read_text("utf-8")
    named = set(re.findall(r"\b(?:onthedot|batch)_\w+", page))
    exported = {each.name for each in (*METRICS, *FLEET_METRICS)}
    exported |= {f"{each.name}_bucket" for each in METRICS if each.type == "histogram"}
    assert named
    assert named <= exported
