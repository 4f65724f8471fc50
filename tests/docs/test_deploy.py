"""The files of deploy/: units that systemd accepts, and an image whose steps can be run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diamond import cli
from diamond.cli.app import BAD_INPUT, DIVERGED
from diamond.hardware import compilation_cache

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_the_unit(tmp_path, unit):
    """The program and its folder do not exist here, so others take their place."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    text, program = unit.read_text(), "/srv/diamond/venv/bin/diamond"
    assert f"ExecStart={program} net " in text
    here = tmp_path / unit.name
    here.write_text(text.replace(program, sys.executable).replace("/srv/diamond", str(tmp_path)))
    result = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True)
    if "Failed to initialize manager" in result.stderr or "Failed to create" in result.stderr:
        pytest.skip(f"systemd-analyze cannot work here: {result.stderr.strip()[:200]}")
    assert result.returncode == 0 and unit.name not in result.stderr, result.stderr
    here.write_text(here.read_text().replace("Restart=on-failure", "Restart=sometimes"))
    worse = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True)
    assert "sometimes" in worse.stderr  # so a mistake would have been seen


def test_the_image_has_a_fixed_base_and_no_file_but_those_it_names():
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith(("COPY", "ADD"))]
    assert copied == [["site.py", "*.whl"]]
    (base,) = (line.removeprefix("ARG BASE=") for line in lines if line.startswith("ARG"))
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", base)
    assert [line for line in lines if line.startswith("FROM")] == ["FROM ${BASE}"]
    ignored = (ROOT / "deploy" / ".dockerignore").read_text().splitlines()
    assert [line for line in ignored if line[0] != "#"] == ["*", "!site.py", "!*.whl"]


def test_kubernetes_gives_a_site_what_it_needs_and_nothing_more(monkeypatch):
    yaml = pytest.importorskip("yaml", reason="the extra docs is not installed")
    text = (ROOT / "deploy" / "kubernetes.yaml").read_text()
    job, *others = yaml.safe_load_all(text)
    kinds = [(part["apiVersion"], part["kind"]) for part in (job, *others)]
    claims = [("v1", "PersistentVolumeClaim")] * 3
    assert kinds == [("batch/v1", "Job"), *claims, ("v1", "Service")]
    pod = job["spec"]["template"]["spec"]
    (site,) = pod["containers"]
    # One process at a time: nothing in parallel, no early replacement, volumes of one pod.
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 1
    assert job["spec"]["podReplacementPolicy"] == "Failed" and pod["restartPolicy"] == "Never"
    assert all(part["spec"]["accessModes"] == ["ReadWriteOncePod"] for part in others[:3])
    fatal = job["spec"]["podFailurePolicy"]["rules"][0]
    assert fatal["action"] == "FailJob"
    codes = fatal["onExitCodes"]
    assert codes == {"containerName": site["name"], "operator": "In", "values": [2, 3]}
    assert [BAD_INPUT, DIVERGED] == codes["values"]
    # Not root, as in the image, and the key keeps its mode.
    security = pod["securityContext"]
    assert security["runAsNonRoot"] and security["fsGroupChangePolicy"] == "OnRootMismatch"
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}\n" in dockerfile
    assert site["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # Every volume exists and is mounted, and the command is one that the image accepts.
    names = [volume["name"] for volume in pod["volumes"]]
    assert sorted(names) == sorted(mount["name"] for mount in site["volumeMounts"])
    claimed = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"][:3]]
    assert claimed == [part["metadata"]["name"] for part in others[:3]]
    words = [text.replace("/bundle", str(ROOT)) for text in site["args"]]
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    found = CliRunner().invoke(cli.app, ["net", *words])
    assert "no whole bundle" in found.stderr  # so all its options exist
    service = others[-1]["spec"]
    assert service["selector"] == job["spec"]["template"]["metadata"]["labels"]
    port = site["ports"][0]["containerPort"]
    assert service["ports"] == [{"port": port, "targetPort": port}]
    assert site["args"][site["args"].index("--listen") + 1] == f"0.0.0.0:{port}"


@pytest.mark.slow
def test_the_steps_of_the_image_lead_to_sites_that_finish():
    index = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", "/dev/null", "typer"],
        capture_output=True,
        text=True,
    )
    if "No matching distribution" in index.stderr:
        pytest.skip("needs a package index")
    script = ROOT / ".ci" / "try_image.py"
    result = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    assert result.stdout.endswith("both sites of the image have finished\n")
