"""Dashboard, alerts and their documentation speak of metrics that a running service has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from evaluator.evaluation import Verdict
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from storage.batches.batches import Batches
from storage.batches.webhooks import Webhooks
from storage.queue.workers import register
from tests.api.inmemory import running
from tests.api.seeds import Seeds, failed

ROOT = Path(__file__).parent.parent
MONITORING = ROOT / "docker" / "monitoring"
OF_PROMETHEUS = {"up": {"job", "instance"}}
VARIABLES = {"$device": "cuda", "$__rate_interval": "5m"}


def load(path: str) -> Any:
    return yaml.safe_load((MONITORING / path).read_text())


def rules() -> list[dict[str, Any]]:
    return [rule for group in load("prometheus/alerts.yml")["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MONITORING / "grafana" / "dashboards" / "kerneljudge.json").read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of ours, with where it stands."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            yield panel["title"], text


EXPRESSIONS = list(expressions())
WHERE = [where for where, _ in EXPRESSIONS]


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory, problems: dict[str, Problem]) -> dict[str, set[str]]:
    """The series of a service in which everything has happened once: names, and their labels."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), problems_dir=ROOT / "reference_models")
    app = create_app(settings)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        seeds = Seeds(app.state.services.sessions, problems)
        details = {"device_fault": "misaligned address", "builds": [{"recipe": "split", "cached": True}]}
        fault = failed(problems["relu"], Verdict.RUNTIME_ERROR, "CUDA error", device="cuda", details=details)
        seeds.evaluate(seeds.submit(device="cuda"), fault)
        seeds.fault(seeds.claim_build(seeds.submit()), "no", final=True)
        with seeds.sessions.begin() as session:
            layers = [{"layer": "files", "there": True, "optional": False}]
            values: dict[str, Any] = {"kind": "evaluate", "queues": ["evaluate.cpu"], "device": "cpu"}
            register(session, "host-cpu-1-ab", capabilities={"sandbox": layers}, **values)
            Batches(session).received(Batches(session).create(webhook=("http://localhost/", "s")).id, "d")
            delivery = Webhooks(session).take_due()
            assert delivery is not None
            Webhooks(session).record(delivery, "")
        http.get("/")
        text = http.get("/metrics").text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        assert family.samples, f"{family.name} has no series"
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def metrics_of(expression: str) -> set[str]:
    return set(re.findall(r"\b(kerneljudge_\w+|up)\b", expression))


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=WHERE)
def test_an_expression_names_metrics_and_labels_that_there_are(
    where: str, expression: str, exposed: dict[str, set[str]]
) -> None:
    known = exposed | OF_PROMETHEUS
    named = metrics_of(expression)
    assert named
    assert named <= set(known)
    for metric, matchers in re.findall(r"\b(kerneljudge_\w+|up)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= known[metric], metric
    labels = set().union(*(known[metric] for metric in named))
    for clause in re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in clause.split(",") if label.strip()} <= labels


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=WHERE)
def test_an_expression_is_whole(where: str, expression: str) -> None:
    bare = re.sub(r'"[^"]*"', "", expression)
    assert '"' not in bare
    waiting: list[str] = []
    for char in bare:
        if char in "([{":
            waiting.append({"(": ")", "[": "]", "{": "}"}[char])
        elif char in ")]}":
            assert waiting.pop() == char
    assert not waiting
    assert "$" not in expression, "a variable that the dashboard does not have"
    # What every process of the API tells of the database is the same, and must not be added up over them.
    for total in re.findall(r"sum[^()]*(?:\([^()]*\)\s*)?\(rate\((kerneljudge_\w+)", expression):
        assert total.startswith("kerneljudge_http_")


def test_prometheus_itself_reads_rules_and_expressions(tmp_path: Path) -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    recorded = [{"record": f"panel:{number}", "expr": text} for number, (_, text) in enumerate(EXPRESSIONS)]
    every = tmp_path / "rules.yml"
    every.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": recorded}]}))
    for argv in (["config", str(MONITORING / "prometheus" / "prometheus.yml")], ["rules", str(every)]):
        checked = subprocess.run([promtool, "check", *argv], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_is_explained() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    explained = re.findall(r"^### (\w+)$", text.partition("## Alerts")[2].partition("\n## ")[0], re.MULTILINE)
    assert explained == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named <= set(re.findall(r"\w+", rule["expr"])) | OF_PROMETHEUS["up"]


def test_every_metric_is_explained(exposed: dict[str, set[str]]) -> None:
    section = (ROOT / "docs" / "operations.md").read_text().partition("## Metrics")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(kerneljudge_\w+)` \| (.*?) \|", section, re.MULTILINE)
    suffixes = re.compile(r"_(bucket|sum|count)$")
    names = {suffixes.sub("", name) for name in exposed if not name.endswith("_created")}
    assert {name for name, _ in rows} == names
    for name, labels in rows:
        found = set().union(*(exposed[each] for each in exposed if suffixes.sub("", each) == name))
        assert set(re.findall(r"`(\w+)`", labels)) == found - {"le"}, name


def test_the_dashboard_is_laid_out_without_overlaps_and_reads_our_prometheus() -> None:
    (source,) = load("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    places: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        box = panel["gridPos"]
        assert box["x"] + box["w"] <= 24
        cells = {(box["x"] + x, box["y"] + y) for x in range(box["w"]) for y in range(box["h"])}
        assert not cells & places, panel["title"]
        places |= cells
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        assert panel["description"]
        assert all(each["datasource"]["uid"] == source["uid"] for each in (panel, *panel["targets"]))


def test_what_compose_mounts_is_where_it_is_looked_for() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    prometheus, grafana = services["prometheus"], services["grafana"]
    assert prometheus["profiles"] == grafana["profiles"] == ["monitoring"]
    mounts = dict(volume.split(":")[:2] for each in (prometheus, grafana) for volume in each["volumes"])
    folders = {ROOT / source: Path(target) for source, target in mounts.items() if source.startswith("./")}

    def inside(path: Path) -> Path:
        return next(
            target / path.relative_to(source) for source, target in folders.items() if path.is_relative_to(source)
        )

    assert f"--config.file={inside(MONITORING / 'prometheus' / 'prometheus.yml')}" in prometheus["command"]
    board = inside(MONITORING / "grafana" / "dashboards" / "kerneljudge.json")
    (provider,) = load("grafana/provisioning/dashboards/kerneljudge.yml")["providers"]
    assert provider["options"]["path"] == str(board.parent)
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == str(board)
    assert inside(MONITORING / "grafana" / "provisioning") == Path("/etc/grafana/provisioning")
    (scraped,) = load("prometheus/prometheus.yml")["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": ["api:8000"]}]
    assert load("prometheus/prometheus.yml")["rule_files"] == ["alerts.yml"]


@pytest.mark.parametrize(("password", "status"), [("", 1), ("abc", 0)])
def test_grafana_does_not_start_without_a_password_of_ours(password: str, status: int, tmp_path: Path) -> None:
    grafana = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]
    # Compose writes a dollar sign as two; Grafana's own program is not here.
    started = tmp_path / "run.sh"
    started.write_text("#!/bin/sh\nexit 0\n")
    started.chmod(0o755)
    argv = [part.replace("$$", "$").replace("/run.sh", str(started)) for part in grafana["entrypoint"]]
    environment = {"GF_SECURITY_ADMIN_PASSWORD": password, "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert ended.returncode == status
    assert ("set GRAFANA_ADMIN_PASSWORD in .env" in ended.stderr) == (not password)
    assert grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD"] == "${GRAFANA_ADMIN_PASSWORD:-}"
