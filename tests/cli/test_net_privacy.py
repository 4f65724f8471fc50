"""`privacy` of a federation, with processes over TLS: the ledger after kill -9, and the budget."""

import json
import math
import time

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

pytest.importorskip("dp_accounting")

from federations import NAMES, start_site

from diamond.cli.app import BAD_INPUT, DIVERGED, FAILED
from diamond.privacy.accountant import Mechanism, Release
from diamond.privacy.ledger import GENESIS_FILE, LEDGER_FILE, LedgerTerms, open_ledger
from diamond.records.folder_lock import acquire_lock
from diamond.report.report_payload import collect_report_data

EPSILON, DELTA, AFFORDABLE = 3.0, 1e-5, 200
PRIVATE = f"""
rounds = 1000
every = 100
network = "ring:3"
[privacy]
epsilon = {EPSILON}
delta = {DELTA}
clip = 0.5
clipping = "whole"
rounds = {AFFORDABLE}
[algorithm]
name = "gt_sgd"
alpha = 0.05
beta = 0.1
batch = 4
order = "atc"
[sites]
"""


@pytest.fixture
def private_trial(trial, command):
    """A federation whose budget is for fewer rounds than it has."""
    sites = (trial / "trial.toml").read_text().partition("[sites]")[2]
    (trial / "trial.toml").write_text(PRIVATE + sites)
    (trial / "trial").rename(trial / "earlier")
    result = command("init", trial / "trial.toml", "--out", trial / "trial")
    assert result.exit_code == 0, result.output
    return trial


def ledger_of(trial, name):
    """The line of the run in a site's ledger, and its whole lines of messages."""
    path = trial / "trial" / name / LEDGER_FILE
    content = path.read_bytes() if path.exists() else b""
    lines = [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    return (lines[1], lines[2:]) if len(lines) > 1 else ({}, [])


def start_words(trial, *options, out="runs"):
    rows = "--problem", f"{trial / 'mine.py'}:make", "--data", trial / "north.npy"
    folders = trial / "trial" / "north", "--out", trial / out
    return "start", *folders, *rows, "--quiet", *options


def spend(folder, epsilon=math.inf):
    """Spend in a ledger as an earlier run with little noise."""
    terms = LedgerTerms(epsilon, DELTA, Mechanism(0.5, (Release(1.0, 1),)), "earlier")
    ledger = open_ledger(folder, None, terms)
    ledger.record(0, 0, [np.ones(3)])
    return ledger.spent


@pytest.mark.wide
def test_another_folder_has_the_same_budget(private_trial, command):
    """What a run has spent is beside the key: the same command with another --out is refused."""
    spent = spend(private_trial / "trial" / "north")
    assert spent > EPSILON
    for out in ("runs", "other"):
        result = command(*start_words(private_trial, out=out))
        assert result.exit_code == FAILED, result.output
        text = " ".join(result.output.split())
        assert f"{spent:.4g} is spent, earlier runs included: this run sends nothing" in text


@pytest.mark.wide(keep=["privacy.genesis"])
@pytest.mark.parametrize("evidence", [LEDGER_FILE, GENESIS_FILE])
def test_a_lost_ledger_is_refused(private_trial, command, evidence):
    bundle = private_trial / "trial" / "north"
    if evidence == LEDGER_FILE:
        spend(bundle)
    (bundle / evidence).unlink()
    result = command(*start_words(private_trial))
    assert result.exit_code == BAD_INPUT, result.output
    text = " ".join(result.output.split())
    assert "is missing" in text and "restore it from its newest copy" in text


def test_one_process_at_a_time_runs_a_bundle(private_trial, command):
    with acquire_lock(private_trial / "trial" / "north" / "site.lock"):
        result = command(*start_words(private_trial))
    assert result.exit_code == FAILED, result.output
    assert "another process is running it" in " ".join(result.output.split())


def test_the_last_x_of_a_run_without_privacy_is_not_sent(private_trial, command):
    folder = private_trial / "runs" / "trial" / "north"
    folder.mkdir(parents=True)
    result = command(*start_words(private_trial, "--onward"))
    assert result.exit_code == BAD_INPUT, result.output
    assert "its last x would be sent without noise" in " ".join(result.output.split())
    assert folder.exists()  # and it is not set aside


def test_doctor_and_start_say_how_large_the_noise_is(private_trial, command):
    start = start_words(private_trial, "--share-loss")  # ends before anything is sent
    doctor = ["doctor", private_trial / "trial" / "north", *start[4:8], "--connect", "0.1"]
    for words in (start, doctor):
        text = " ".join(command(*words).output.split())
        assert "privacy: epsilon = 3 and delta = 1e-05 for 200 rounds, with a noise" in text
        assert "The noise in a site's direction of x has norm" in text


def test_the_loss_of_a_private_site_is_not_shared(private_trial, command):
    result = command(*start_words(private_trial, "--share-loss"))
    assert result.exit_code == BAD_INPUT, result.output
    text = " ".join(result.output.split())
    assert "cannot combine privacy with --share-loss: it shows the loss" in text


def exact_epsilon(sensitivity, delta):
    """Epsilon of a Gaussian release, the exact curve of Balle and Wang (2018)."""

    def excess(epsilon):
        lower, upper = (-epsilon / sensitivity + sign * sensitivity / 2 for sign in (-1, 1))
        return norm.cdf(upper) - math.exp(epsilon) * norm.cdf(lower) - delta

    return brentq(excess, 0, 50)


@pytest.mark.slow
def test_ledgers_survive_kill_9_and_sites_stop_before_they_overspend(private_trial, command):
    trial, until = private_trial, time.monotonic() + 120
    processes = {name: start_site(trial, name) for name in NAMES}
    try:
        while len(ledger_of(trial, "north")[1]) < 20 and time.monotonic() < until:
            time.sleep(0.01)
        processes["north"].kill()
        processes["north"].wait()
        _, before = ledger_of(trial, "north")
        time.sleep(1.0)  # the others use what they got, and wait
        answers = json.loads(command("status", trial / "trial" / "south", "--json").stdout)
        assert 20 <= len(before) < AFFORDABLE
        for name in ("south", "west"):  # every message that they used was in the ledger
            assert answers[name]["round"] <= len(before)
            assert 0 < answers[name]["epsilon"] <= answers[name]["budget"] == EPSILON
        processes["north"].stdout.close()
        processes["north"] = start_site(trial, "north")
        codes = {name: process.wait(120) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
            process.stdout.close()
    assert FAILED in codes.values() and {*codes.values()} <= {FAILED, DIVERGED}
    stopped = next(name for name, code in codes.items() if code == FAILED)
    reason = (trial / f"{stopped}.txt").read_text()
    assert f"round {AFFORDABLE} would spend epsilon = 3.0" in " ".join(reason.split())
    for name in NAMES:
        header, entries = ledger_of(trial, name)
        assert [entry["round"] for entry in entries] == list(range(AFFORDABLE))
        spent = [entry["epsilon"] for entry in entries]
        assert spent == sorted(spent) and 0.99 * EPSILON < spent[-1] <= EPSILON
        multiplier, releases = header["mechanism"]["multiplier"], header["mechanism"]["releases"]
        per_round = max(release[1] for release in np.reshape(releases, (-1, 2)).tolist())
        for rounds in (1, 30, AFFORDABLE):  # never less than the truth, and not much more
            exact = exact_epsilon(math.sqrt(rounds * per_round) / multiplier, DELTA)
            assert exact <= spent[rounds - 1] <= 1.3 * exact
    assert ledger_of(trial, "north")[1][: len(before)] == before
    (run,) = collect_report_data([trial / "runs" / "trial" / "north"])["runs"]
    assert run["privacy"]["spent"] == pytest.approx(spent[-1], rel=1e-5)
    assert (run["privacy"]["epsilon"], run["privacy"]["rounds"]) == (EPSILON, AFFORDABLE)
