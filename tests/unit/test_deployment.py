"""The files of `docs/deploy`: each is read, and each command line is one that the command line takes."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from onthedot.cli import CommandGroup, main
from onthedot.web.settings import WebSettings, token_credential
from tests.support.services.programs import give_up
from tests.support.source_files import ROOT

pytestmark = pytest.mark.once

FILES = ROOT / "docs" / "deploy"
GUIDE = (ROOT / "docs" / "how-to" / "deployment.md").read_text("utf-8")
UNITS = sorted(FILES.glob("*.service"))
PROXY_NEEDS = {
    "nginx.conf": ["proxy_buffering off;", "http2 on;", "location /tasks/", "proxy_read_timeout 1h;"],
    "Caddyfile": ["reverse_proxy /tasks/*", "flush_interval -1"],
}


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text("utf-8"))
    return parser


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FILES / name).read_text("utf-8")))


def lists(value: Any) -> Iterator[list[Any]]:
    """All lists inside of a value."""
    if isinstance(value, dict):
        for each in value.values():
            yield from lists(each)
    elif isinstance(value, list):
        yield value
        for each in value:
            yield from lists(each)


def commands() -> Iterator[tuple[str, list[str]]]:
    """File and words of every command line of onthedot."""
    for path in UNITS:
        words = shlex.split(unit(path)["Service"]["ExecStart"])
        yield path.name, [Path(words[0]).name, *words[1:]]
    (words,) = re.findall(r"^CMD (.*)", (FILES / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    yield "Dockerfile", json.loads(words)
    for path in sorted(FILES.glob("*.yaml")):
        for document in documents(path.name):
            yield from ((path.name, words) for words in lists(document) if words[:1] == ["onthedot"])


COMMANDS = list(commands())


def test_every_kind_of_file_has_a_command() -> None:
    names = [name for name, _ in COMMANDS]
    assert sorted(names) == [
        "Dockerfile", "compose.yaml", "kubernetes.yaml", "kubernetes.yaml", "shop-web.service", "shop-worker.service",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "words"), COMMANDS, ids=[f"{name}-{words[1]}" for name, words in COMMANDS])
def test_command_line_takes_the_options(name: str, words: list[str]) -> None:
    with click.Context(main) as context:
        found = main.get_command(context, words[1])
        if isinstance(found, CommandGroup):
            found = found.get_command(context, "")
        assert found is not None
        given = found.make_context(words[1], words[2:], parent=context)  # raises for a wrong option
        if words[1] == "web":
            check_address(given.params)
        given.close()


def check_address(options: dict[str, Any]) -> None:
    """As the command does when it starts: a public address needs a token, and TLS or --insecure."""
    host, port = options["listen"]
    settings = WebSettings(
        host=host,
        port=port,
        credentials=(token_credential("operator", "operator", "a long token of a test"),),
        public_url=options["public_url"],
        insecure=options["insecure"],
    )
    settings.check_bind()


def test_command_line_with_an_unknown_option_would_be_found() -> None:
    with click.Context(main) as context:
        found = main.get_command(context, "web")
        assert found is not None
        with pytest.raises(click.NoSuchOption):
            found.make_context("web", ["--prefx", "/tasks"], parent=context)


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.name)
def test_guide_shows_the_file(path: Path) -> None:
    assert f'title="{path.name}"\n{path.read_text("utf-8")}```' in GUIDE


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_unit(path: Path, tmp_path: Path) -> None:
    service = unit(path)["Service"]
    assert service["User"] != "root"
    if "WatchdogSec" in service:
        assert service["Type"] == "notify"
        assert int(service["TimeoutStopSec"]) > 25 + 3  # --stop-timeout, and the kill after it
    program = shutil.which("systemd-analyze")
    if program is None:
        give_up("no systemd-analyze; what holds without it was checked")
    here = tmp_path / path.name  # programs of the unit must exist, and its folder
    text = re.sub(r"/srv/shop/\.venv/bin/onthedot", "/bin/true", path.read_text("utf-8"))
    here.write_text(re.sub(r"^(User|WorkingDirectory|EnvironmentFile)=.*\n", "", text, flags=re.MULTILINE))
    done = subprocess.run([program, "verify", "--man=no", str(here)], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if path.name in line]
    assert (done.returncode, complaints) == (0, [])


def test_compose_file_names_its_services() -> None:
    (compose,) = documents("compose.yaml")
    services = compose["services"]
    assert set(services) == {"cache", "worker", "web"}
    assert set(services["web"]["depends_on"]) <= set(services)
    assert {volume.partition(":")[0] for volume in services["cache"]["volumes"]} == set(compose["volumes"])
    assert all(services[name]["init"] for name in ("worker", "web"))


def test_kubernetes_objects_belong_together() -> None:
    objects = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in documents("kubernetes.yaml")}
    for kind, name in (("Deployment", "shop-worker"), ("Deployment", "shop-web")):
        spec = objects[kind, name]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        (container,) = spec["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        given = " ".join(container["args"])
        assert all(f":{number}" in given for number in ports.values())
        probes = [value for key, value in container.items() if key.endswith("Probe")]
        for probe in probes:
            assert probe.get("httpGet", probe.get("tcpSocket"))["port"] in ports
    worker = objects["Deployment", "shop-worker"]["template"]
    assert worker["spec"]["terminationGracePeriodSeconds"] > 25 + 3
    monitor = objects["PodMonitor", "shop-worker"]
    assert monitor["selector"]["matchLabels"] == worker["metadata"]["labels"]
    assert objects["Service", "shop-web"]["selector"] == {"app": "shop-web"}
    (scaled,) = documents("keda.yaml")
    assert scaled["spec"]["scaleTargetRef"]["name"] == "shop-worker"
    assert "onthedot_queue_depth" in (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    assert "onthedot_queue_depth" in scaled["spec"]["triggers"][0]["metadata"]["query"]


@pytest.mark.parametrize("name", PROXY_NEEDS)
def test_proxy_passes_streams_on(name: str) -> None:
    text = (FILES / name).read_text("utf-8")
    assert text.count("{") == text.count("}")
    assert [need for need in PROXY_NEEDS[name] if need not in text] == []
