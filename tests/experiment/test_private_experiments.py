"""Private experiments of files: what they say about their noise, and what they have spent."""

import json
import re

import pytest

pytest.importorskip("dp_accounting")

from typer.testing import CliRunner

from diamond.cli import app
from diamond.cli.app import BAD_INPUT, DIVERGED
from diamond.privacy.accountant import Mechanism, Release, epsilon_after

FILE = """
name = "mine"
rounds = 20
every = 1
problem = {{kind = "quadratic", agents = 3}}
network = "ring:3"
algorithm = {{name = "dsgd", alpha = {alpha}, {beta}batch = 4}}
privacy = {{epsilon = 8, clip = {clip}}}
"""


def invoke(folder, command, alpha, beta="beta = 0.1, ", clip=1.0):
    """Run a command on the file; return its words, exit code and the folder of the run."""
    file = folder / "mine.toml"
    file.write_text(FILE.format(alpha=alpha, beta=beta, clip=clip))
    words = [command, str(file)] + (["--out", str(folder / "runs")] if command == "run" else [])
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    return " ".join(result.output.split()), result.exit_code


def test_check_says_how_large_the_noise_is_and_what_alpha_it_allows(tmp_path):
    text, code = invoke(tmp_path, "check", 0.1, beta="")  # learned, which stays at each site
    assert code == 0, text
    multiplier = float(re.search(r"for 20 rounds, with a noise multiplier of ([\d.]+)", text)[1])
    spent = epsilon_after(Mechanism(multiplier, (Release(1.0, 1),)), 20, 1e-5)
    assert spent == pytest.approx(8, rel=0.01)
    norm = float(re.search(r"direction of x has norm ([\d.]+)", text)[1])
    assert norm > multiplier and "the direction itself at most 1, the clip" in text
    alpha = float(re.search(r"give about ([\d.e-]+),", text)[1])
    assert alpha == pytest.approx(0.1 / norm, rel=0.06)


def test_a_run_that_cannot_be_private_is_refused_with_the_reason(tmp_path):
    text, code = invoke(tmp_path, "run", 0.1, clip='1.0, clipping = "row"')
    assert code == BAD_INPUT, text
    assert "implicit directions are no average over rows: use clipping='whole'" in text


def manifest_of(folder):
    return json.loads((folder / "runs" / "mine" / "manifest.json").read_text())


def test_a_diverged_run_blames_the_noise_that_is_larger_than_directions(tmp_path):
    text, code = invoke(tmp_path, "run", 1e20)
    assert code == DIVERGED, text
    assert "privacy: epsilon = 8" in text  # before the run
    reason = text[text.index("mine diverged ") :]
    assert "noise for privacy is the likely cause. The noise in a site's direction" in reason
    assert "alpha is the likely cause" not in reason


@pytest.mark.wide
def test_a_diverged_run_says_what_the_rounds_that_it_made_have_spent(tmp_path):
    """An unstable lower level, which is to blame in spite of the noise."""
    text, code = invoke(tmp_path, "run", 1e-3, beta="beta = 1e6, ")
    assert code == DIVERGED, text
    assert "so the lower level cannot be stable" in text
    (round,) = re.findall(r"mine diverged in round (\d+)", text)
    manifest = manifest_of(tmp_path)
    privacy = manifest["privacy"]
    assert privacy["rounds"] == int(round) + 1 < manifest["rounds"] == 20
    mechanism = Mechanism(privacy["noise_multiplier"], (Release(1.0, 1),))
    assert privacy["spent"] == pytest.approx(epsilon_after(mechanism, privacy["rounds"], 1e-5))
    assert privacy["spent"] < 7


def test_a_finished_run_has_spent_its_budget(tmp_path):
    text, code = invoke(tmp_path, "run", 1e-3)
    assert code == 0, text
    privacy = manifest_of(tmp_path)["privacy"]
    assert privacy["rounds"] == 20 and 7.9 < privacy["spent"] <= 8
