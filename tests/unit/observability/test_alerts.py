"""The alert rules and the Grafana dashboard of the documentation name only what the code exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from onthedot.model.figures import Metric
from onthedot.observability.worker_metrics import METRICS
from onthedot.operations.attention import AttentionKind
from onthedot.operations.fleet_metrics import FLEET_METRICS
from tests.support.services.promtool import rule_problems
from tests.support.source_files import ROOT

yaml: Any = pytest.importorskip("yaml")

BY_NAME = {metric.name: metric for metric in (*METRICS, *FLEET_METRICS)}
NAME = re.compile(r"\b(?:onthedot|batch|process)_\w+")
SELECTOR = re.compile(r"(\w+)\{([^{}]*)\}")
GROUPED = re.compile(r"\b(?:by|on) \(([\w, ]*)\)")
OF_PROMETHEUS = {"le", "app", "instance"}  # of histograms, of the scrape settings
ROWS = {"Overview", "Sources", "Schedules", "Workers", "Outbox"}
BRACKETS = {")": "(", "]": "[", "}": "{"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "grafana.json").read_text("utf-8"))
    return found


def metric_of(name: str) -> Metric:
    if name in BY_NAME:
        return BY_NAME[name]
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    assert base in BY_NAME, f"{name} is not exported"
    assert BY_NAME[base].type == "histogram", name
    return BY_NAME[base]


def check_expression(expression: str) -> None:
    """Its metrics exist and have the labels that it selects and groups by; rates are those of counters."""
    metrics = [metric_of(name) for name in NAME.findall(expression)]
    assert metrics, expression
    labels = {label for metric in metrics for label in metric.labels} | OF_PROMETHEUS
    for name, selected in SELECTOR.findall(expression):
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selected))
        assert used <= {*metric_of(name).labels, *OF_PROMETHEUS}, expression
    for group in GROUPED.findall(expression):
        assert set(re.findall(r"\w+", group)) <= labels, expression
    for name in re.findall(r"(?:rate|increase)\((\w+)", expression):
        assert metric_of(name).type != "gauge", expression
    assert_balanced(expression)


def assert_balanced(expression: str) -> None:
    opened: list[str] = []
    for each in re.sub(r'"[^"]*"', "", expression):
        if each in BRACKETS.values():
            opened.append(each)
        elif each in BRACKETS:
            assert opened, expression
            assert opened.pop() == BRACKETS[each], expression
    assert not opened, expression


def expressions_of(shown: dict[str, Any]) -> Iterator[str]:
    for panel in shown["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in shown["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"label_values\((.*), (\w+)\)", r"sum by (\2) (\1)", variable["definition"])


def test_alert_rules_name_metrics_and_labels_that_exist() -> None:
    for rule in rules():
        check_expression(rule["expr"])
        metrics = [metric_of(name) for name in NAME.findall(rule["expr"])]
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named <= {label for metric in metrics for label in metric.labels}, rule["alert"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m")), rule["alert"]
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)


def test_every_kind_of_attention_item_has_an_alert_rule() -> None:
    assert {rule["labels"]["kind"] for rule in rules() if "kind" in rule["labels"]} == set(get_args(AttentionKind))


def test_table_of_the_documentation_has_every_kind_with_its_rules() -> None:
    """In the order of the file."""
    text = (ROOT / "docs" / "how-to" / "prometheus.md").read_text("utf-8")
    table = text.partition("| kind | alert | when |")[2].partition("\n\n")[0]
    listed: list[tuple[set[str], list[str]]] = []
    for row in table.splitlines()[2:]:
        kinds, alerts, _ = row.strip("| ").split(" | ")
        listed.append((set(re.findall(r"`(\w+)`", kinds)), re.findall(r"`(\w+)`", alerts)))
    written = [(rule["labels"]["kind"], rule["alert"]) for rule in rules() if "kind" in rule["labels"]]
    assert [alert for _, alerts in listed for alert in alerts] == [alert for _, alert in written]
    for kinds, alerts in listed:
        assert kinds == {kind for kind, alert in written if alert in alerts}


def test_dashboard_names_metrics_and_labels_that_exist() -> None:
    found = dashboard()
    for expression in expressions_of(found):
        check_expression(expression.replace("$__rate_interval", "5m"))
    for target in [target for panel in found["panels"] for target in panel.get("targets", ())]:
        grouped = set(re.findall(r"\w+", " ".join(GROUPED.findall(target["expr"]))))
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped, target


def test_dashboard_has_its_rows_and_variables() -> None:
    found = dashboard()
    assert {panel["title"] for panel in found["panels"] if panel["type"] == "row"} == ROWS
    assert [variable["name"] for variable in found["templating"]["list"]] == ["datasource", "app", "source"]
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]


@pytest.mark.once
def test_promtool_accepts_the_alert_rules() -> None:
    assert rule_problems(ROOT / "docs" / "alerts.yml") == ""


@pytest.mark.once
def test_promtool_parses_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    assert expression_problems(tmp_path, sorted(set(expressions_of(dashboard())))) == ""


@pytest.mark.once
def test_promtool_would_find_an_expression_that_cannot_be_parsed(tmp_path: Path) -> None:
    assert "parse error" in expression_problems(tmp_path, ["sum by source (onthedot_tasks_running)"])


def expression_problems(folder: Path, expressions: list[str]) -> str:
    texts = [expression.replace("$__rate_interval", "5m") for expression in expressions]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(texts)]
    file = folder / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    return rule_problems(file)
