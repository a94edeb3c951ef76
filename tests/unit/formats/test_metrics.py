"""Names of metrics, and where they are written: docs, alerts, dashboard."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.exported_metrics import Exported, exported_metrics

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "running" / "watching.md"
MONITORING = ROOT / "deploy" / "monitoring"
ALERTS: list[dict[str, Any]] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
PANELS: list[dict[str, Any]] = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
UNITS = ("seconds", "bytes", "images", "samples", "reads", "retries", "rereads", "requests", "connections", "tasks")
OF_PROMETHEUS = {"instance", "job", "le"}


@pytest.fixture(scope="module")
def exported() -> dict[str, Exported]:
    return exported_metrics()


def expressions() -> Iterator[str]:
    """Every query of the alerts and the dashboard."""
    yield from (rule["expr"] for group in ALERTS for rule in group["rules"])
    yield from (target["expr"] for panel in PANELS for target in panel.get("targets", ()))


def test_names_follow_one_rule(exported: dict[str, Exported]) -> None:
    assert {name.split("_")[1] for name in exported} == {"job", "loader", "service"}
    for name, one in exported.items():
        assert re.fullmatch(r"imagestrata(_[a-z]+){2,}", name), name
        assert (one.type == "counter") == name.endswith("_total"), name
        unit = name.removesuffix("_total").rpartition("_")[2]
        assert unit in UNITS or name in ("imagestrata_job_info", "imagestrata_job_state"), name


def test_the_page_lists_every_metric_as_it_is_exported(exported: dict[str, Exported]) -> None:
    rows = re.findall(r"^\| `(imagestrata_\w+)` \| (\w+) \| ([^|]*) \| .+ \|$", PAGE.read_text(encoding="utf-8"), re.M)
    listed = {name: Exported(kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert listed == exported
    assert len(listed) == len(rows)


def test_queries_name_only_metrics_and_labels_that_are_exported(exported: dict[str, Exported]) -> None:
    found = set()
    for query in expressions():
        names = re.findall(r"\b(imagestrata_\w+)", query)
        metrics = [exported[one.removesuffix("_bucket") if "histogram_quantile" in query else one] for one in names]
        labels = {label for one in metrics for label in one.labels} | OF_PROMETHEUS
        used = re.findall(r"(\w+)=~?\"", query)
        for listed in re.findall(r"(?:by|on|group_left) \(([\w, ]+)\)", query):
            used += listed.split(", ")
        assert set(used) <= labels, query
        assert names or "up{" in query, query
        found.update(names)
    assert len(found) > 20


def test_summaries_and_legends_name_labels_that_the_query_keeps(exported: dict[str, Exported]) -> None:
    told = [(rule["expr"], rule["annotations"]["summary"]) for group in ALERTS for rule in group["rules"]]
    told += [(one["expr"], one.get("legendFormat", "")) for panel in PANELS for one in panel.get("targets", ())]
    for query, text in told:
        names = re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text)
        kept = re.search(r"\b(?:sum|min|max) by \(([\w, ]+)\)", query)
        metrics = [exported[one] for one in re.findall(r"\bimagestrata_\w+", query) if one in exported]
        labels = {label for one in metrics for label in one.labels} | OF_PROMETHEUS
        assert set(names) <= (set(kept[1].split(", ")) if kept else labels), query


def test_every_alert_is_explained(exported: dict[str, Exported]) -> None:
    explained = set(re.findall(r"^\| `(Imagestrata\w+)` \|", PAGE.read_text(encoding="utf-8"), re.M))
    assert explained == {rule["alert"] for group in ALERTS for rule in group["rules"]}
