"""`signed = true`: a site that is two processes to its neighbours is named, with a proof."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from federations import FEDERATION, NAMES, start_site

from diamond.cli.app import FAILED
from diamond.config import federation_file
from diamond.config.validation_errors import BadExperiment

LIAR = """
import sys
sys.path.insert(0, {support!r})
from two_faced_site import TwoFaced
import diamond.sites.rounds.epoch_run as sites
sites.Node = TwoFaced
from diamond.cli import app
app()
"""
SITES = '\nnorth = "127.0.0.1:1"\nsouth = "127.0.0.1:2"\nwest = "127.0.0.1:3"\n'


def test_only_signed_federations_say_so(tmp_path):
    path = tmp_path / "trial.toml"
    path.write_text(FEDERATION + SITES)
    plain = federation_file.load(path)
    assert "signed" not in plain.terms() and not plain.signed
    path.write_text("signed = true" + FEDERATION + SITES)
    signed = federation_file.load(path)
    assert signed.terms() == plain.terms() | {"signed": True}
    assert federation_file.from_terms("trial", signed.terms(), signed.sites).signed
    path.write_text("signed = 1" + FEDERATION + SITES)
    with pytest.raises(BadExperiment, match="signed"):
        federation_file.load(path)


@pytest.fixture
def signed_trial(trial, command):
    text = (trial / "trial.toml").read_text().replace("rounds = 60", "rounds = 100000")
    (trial / "trial.toml").write_text("signed = true" + text.replace("every = 10", "every = 500"))
    (trial / "trial").rename(trial / "unsigned")
    result = command("init", trial / "trial.toml", "--out", trial / "trial")
    assert result.exit_code == 0, result.output
    (trial / "liar.py").write_text(LIAR.format(support=str(Path(__file__).parents[1] / "support")))
    return trial


def start_liar(trial, name):
    words = ["net", "start", trial / "trial" / name, "--problem", f"{trial / 'mine.py'}:make"]
    words += ["--data", trial / f"{name}.npy", "--out", trial / "runs", "--connect", "2"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(trial / "cache")}
    return subprocess.Popen(
        [sys.executable, str(trial / "liar.py"), *map(str, words)],
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def test_a_two_faced_site_is_named_in_the_status_and_proven_offline(signed_trial, command):
    """Processes and TLS: south tells north something else; north and west can prove it."""
    trial, until = signed_trial, time.monotonic() + 120
    honest = [start_site(trial, name) for name in ("north", "west")]
    processes = [*honest, start_liar(trial, "south")]
    try:
        seen = []
        while len(seen) < 2 and time.monotonic() < until:
            time.sleep(0.5)
            result = command(
                "status", trial / "trial" / "north", "--all", "--json", "--connect", "1"
            )
            answers = json.loads(result.stdout) if result.exit_code == 0 else {}
            seen = [site for site in ("north", "west") if answers.get(site, {}).get("liars") == [1]]
        text = command("status", trial / "trial" / "north").stdout
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for process in honest:
            process.stdout.close()
    assert seen == ["north", "west"], (trial / "north.txt").read_text()
    assert "has proof that south told different neighbours different things" in text
    for name in ("north", "west"):
        path = trial / "runs" / "trial" / name / "proofs" / "south.json"
        result = command("proof", path, trial / "trial" / "ca.pem", "--json")
        assert result.exit_code == 0 and json.loads(result.stdout)["site"] == "south"
    assert "proven: south signed two different" in command("proof", path, trial / "trial").stdout
    result = command("proof", path, trial / "unsigned")  # another authority of the same name
    assert result.exit_code == FAILED and "proves nothing" in result.output
    document = json.loads(path.read_text())
    document["site"] = NAMES[0]  # what the file says itself is not believed
    path.write_text(json.dumps(document))
    result = command("proof", path, trial / "trial" / "ca.pem", "--json")
    assert json.loads(result.stdout)["site"] == "south"
