"""The snippets of docs/deploy.md and the Dockerfile, read by parsers of their formats."""

import configparser
import re

import pytest
from programs import ROOT

PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
SERVE = (ROOT / "export" / "serve.py").read_text(encoding="utf-8")


def snippets(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_compose_and_kubernetes_describe_a_server_with_a_key_memory_and_probes():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    compose, kubernetes = snippets("yaml")
    (service,) = yaml.safe_load(compose)["services"].values()
    assert "XLING_TF_API_KEY" in service["environment"]
    assert service["mem_limit"] == "2g"
    deployment, address = yaml.safe_load_all(kubernetes)
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert address["spec"]["selector"] == pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": 8501}
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert container["env"][0]["name"] == "XLING_TF_API_KEY"


def test_the_unit_of_systemd_starts_the_server():
    (text,) = snippets("ini")
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    program, command, *arguments = unit["Service"]["ExecStart"].split()
    assert (program.rpartition("/")[2], command) == ("xling-tf", "serve")
    assert unit["Service"]["EnvironmentFile"]
    for flag in re.findall(r"--(\w+)", " ".join(arguments)):
        assert f'"{flag}"' in SERVE


def test_the_proxy_has_balanced_braces_and_whole_lines():
    (text,) = snippets("nginx")
    assert text.count("{") == text.count("}") > 0
    lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    assert all(line.endswith(("{", "}", ";")) for line in lines if line)


def test_the_image_checks_its_health_and_leaves_large_folders_out():
    left_out = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", "exported", "runs"} <= set(left_out)
    assert re.search(r"^HEALTHCHECK .*", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
