"""What can be said about the deployment files without running them (tests/deploy runs them)."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import peerage
from peerage import metrics

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"

def test_the_systemd_unit_is_valid(tmp_path):
    """As systemd reads it; the programs it starts are not on this machine."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    unit = tmp_path / "peerage.service"
    text = (DEPLOY / "peerage.service").read_text()
    unit.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    about_it = [line for line in done.stdout.splitlines() if "peerage" in line]
    assert done.returncode == 0 and not about_it, done.stdout


def test_the_systemd_unit_is_hardened(tmp_path):
    text = (DEPLOY / "peerage.service").read_text()
    for line in ("NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "DynamicUser=yes"):
        assert f"\n{line}\n" in text


def test_restarts_are_jittered(tmp_path):
    """The unit's own stop command waits after a failure, for different times, and not after
    a stop that was asked for."""
    text = (DEPLOY / "peerage.service").read_text()
    (command,) = re.findall(r"^ExecStopPost=/bin/sh -c '(.*)'$", text, re.MULTILINE)
    (tmp_path / "sleep").write_text('#!/bin/sh\necho "$1" >>"$LOG"\n')
    (tmp_path / "sleep").chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
    subprocess.run(["sh", "-c", command], env=environment | {"SERVICE_RESULT": "success"}, check=True)
    assert not log.exists()
    for _ in range(40):
        subprocess.run(["sh", "-c", command], env=environment | {"SERVICE_RESULT": "signal"}, check=True)
    waits = {int(line) for line in log.read_text().split()}
    assert len(waits) >= 3 and max(waits) <= 4


@pytest.fixture(scope="module")
def kubernetes():
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def named(documents, kind, name):
    (found,) = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    return found


def test_kubernetes_ports_selectors_and_names_agree(kubernetes):
    web = named(kubernetes, "Deployment", "peerage")["spec"]["template"]
    (container,) = web["spec"]["containers"]
    environment = {e["name"]: e for e in container["env"]}
    labels = web["metadata"]["labels"]
    peers = named(kubernetes, "Service", environment["PEERS"]["value"])["spec"]
    assert peers["clusterIP"] == "None" and peers["publishNotReadyAddresses"] is True
    assert peers["selector"].items() <= labels.items()

    workers = int(environment["WEB_CONCURRENCY"]["value"])
    first, count = (int(environment[n]["value"]) for n in ("PEER_PORT", "PEER_PORT_RANGE"))
    assert count == workers + 1
    policy = named(kubernetes, "NetworkPolicy", "peerage")["spec"]
    opened = policy["ingress"][0]
    assert {p["protocol"] for p in opened["ports"]} == {"TCP", "UDP"}
    for port in opened["ports"]:
        assert (port["port"], port["endPort"]) == (first, first + count - 1)
    assert opened["from"] == [{"podSelector": policy["podSelector"]}]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()

    address = environment["PEER_ADVERTISE_ADDR"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert address == "status.podIP"
    assert "value" not in environment["PEER_SECRET"]
    assert container["lifecycle"]["preStop"]
    for kind in ("Deployment",):
        for document in kubernetes:
            if document["kind"] == kind:
                spec = document["spec"]
                assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_workflows_are_yaml_and_their_scripts_are_there():
    yaml = pytest.importorskip("yaml")
    called = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        for job in workflow["jobs"].values():
            assert job["timeout-minutes"] > 0
            for step in job["steps"]:
                called |= set(re.findall(r"(?:scripts|deploy|\.ci)/[\w./-]+", step.get("run", "")))
    assert {".ci/run", "scripts/demo.sh", "deploy/remote-deploy.sh"} <= called
    for name in called:
        assert (ROOT / name).is_file(), name


def test_the_deploy_workflow_hands_every_setting_on():
    text = (ROOT / ".github" / "workflows" / "deploy.yml").read_text()
    for name in ("ENABLE_PEERS", "PEERS", "PEER_PORT", "PEER_ALLOW_CIDR", "PEER_ENCRYPTION"):
        assert f"{name}: ${{{{ vars.{name} }}}}" in text
    assert "PEER_SECRET: ${{ secrets.PEER_SECRET }}" in text


def test_the_image_is_built_from_files_that_are_there():
    text = (DEPLOY / "Dockerfile").read_text()
    assert text.count("\nFROM ") == 2 and "\nUSER 10001" in text and "\nHEALTHCHECK " in text
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_alerts_and_dashboard_ask_for_metrics_that_exist():
    with peerage.Peers() as peers:
        text = metrics.text(peers)
    exist = set(re.findall(r"^(peerage_\w+)", text, re.MULTILINE))
    for name in ("prometheus-rules.yaml", "grafana-dashboard.json"):
        asked = set(re.findall(r"\bpeerage_\w+", (DEPLOY / name).read_text()))
        assert len(asked) > 10
        assert asked <= exist, (name, asked - exist)


def test_the_alerts_are_whole():
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text())["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) >= 8
    explained = (ROOT / "docs" / "OPERATIONS.md").read_text()
    for rule in group["rules"]:
        assert rule["expr"] and rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"] and rule["annotations"]["action"]
        assert rule["alert"] in explained


def test_the_dashboard_is_whole():
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(places) == len(set(places)) >= 8
    for panel in dashboard["panels"]:
        assert panel["targets"] and panel["description"]


def test_every_warning_is_explained_to_operators():
    """What the native part may log as a warning or an error begins a row of OPERATIONS.md."""
    explained = (ROOT / "docs" / "OPERATIONS.md").read_text().replace("`", "")
    said = set()
    for path in (ROOT / "native" / "shell").glob("*.c"):
        for level, text in re.findall(r"LOG_(WARNING|ERROR),\s*\"([^\"]+)", path.read_text()):
            said.add(re.split(r"%", text)[0].strip() if not text.startswith("%") else text)
    said = {text for text in said if not text.startswith("%s")}
    assert len(said) > 6
    for text in said:
        assert text[:24].rstrip(" (") in explained, text
