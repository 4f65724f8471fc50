"""A federation whose file says the problem: every site makes its part of it from its own files."""

import tomllib

import numpy as np
import pytest
from commands import command
from fast_compilation import skip_loss_checks
from tiny_experiment import TINY

from diamond.config import experiment_file as config
from diamond.config import federation_file
from diamond.config.site_problem import read_site_problem
from diamond.config.validation_errors import BadExperiment
from diamond.sites.identity.handshake import compute_digests
from diamond.sites.rounds.site_agent import Agent

SITES = {"north": ["no", "yes"], "south": ["yes"]}  # one has no row of a class
FILE = """
rounds = 3
network = "ring:2"
algorithm = {name = "gt_sgd", batch = 2, alpha = 0.1, beta = 0.1, hypergradient = "exact"}
[problem]
kind = "hyperparameter"
dataset = "{agent}.csv"
label = "ill"
labels = ["no", "yes"]
features = ["age", "dose", "room"]
levels = {room = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}
scale = {age = [50.0, 15.0]}
[sites]
north = "127.0.0.1:7101"
south = "127.0.0.1:7102"
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Tables whose columns stand in different orders."""
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    random = np.random.default_rng(0)
    for site, marks in SITES.items():
        rows = [f"{random.normal(50, 15):.2f},{random.normal():.2f},{i}" for i in range(10)]
        rows = [f"{row},{marks[i % len(marks)]}" for i, row in enumerate(rows)]
        lines = ["age,dose,room,ill", *rows]
        if site == "south":
            lines = [",".join(reversed(line.split(","))) for line in lines]
        (tmp_path / f"{site}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "trial.toml").write_text(FILE)
    return tmp_path


def test_sites_have_the_rows_that_a_simulation_gives_them_and_run_the_same(here):
    found = federation_file.load(here / "trial.toml")
    assert tomllib.loads(found.to_toml())["problem"] == found.problem == found.terms()["problem"]
    parts = [
        read_site_problem(found.problem, site, i, None, base=here) for i, site in enumerate(SITES)
    ]
    alone = [part.build() for part in parts]
    table = found.problem | {"dataset": {site: f"{site}.csv" for site in SITES}}
    raw = TINY | {"problem": table, "network": "ring:2"}
    whole = config.validate(raw, here, "x.toml").problem.build()
    for part in ("train", "valid", "test"):
        for i in range(2):
            for leaf in "ab":
                np.testing.assert_array_equal(
                    np.sort(alone[i].rows[part][0][leaf], axis=0),
                    np.sort(whole.rows[part][i][leaf], axis=0),
                )
    given = found.build_network(), found.algorithm.build()
    assert whole.names[2:4] == ("room=0", "room=1") and alone[0].names == whole.names
    assert alone[0].preparation == whole.preparation  # no site has fills
    digests = [compute_digests(Agent(own, *given, i), 3) for i, own in enumerate(alone)]
    assert digests[0] == digests[1]
    named = read_site_problem(found.problem, "north", 0, here / "south.csv", base=here).build()
    np.testing.assert_array_equal(named.rows["train"][0]["b"], 1)


@pytest.mark.parametrize("old, new, message", [
    ('labels = ["no", "yes"]', "", "problem.labels: is missing: list all classes in their order"),
    ("scale = {age = [50.0, 15.0]}", 'scale = "standard"', "problem.scale: no site sees the rows"),
    ('label = "ill"', 'categories = "one_hot"', "problem.categories: no site sees the levels of"),
    ('levels = {room', 'levels = {sex = ["F"], room', "problem.levels: no feature column 'sex'"),
    ('levels = {room', "levels = {age = [], room", "problem.levels: age has no level"),
    ('label = "ill"', "hashed = true", "problem.hashed: must be a whole number"),
    ('label = "ill"', 'lable = "ill"', "problem.lable: is no option of hyperparameter; did you"),
    ('label = "ill"', "agents = 2", "problem.agents: every site has its own rows; leave it out"),
    ('"{agent}.csv"', '["a.csv"]', "problem.dataset: must be one path; {agent} in it is the name"),
    ('"hyperparameter"', '"hyper_cleaning"', "no problem 'hyper_cleaning' on rows of sites; did"),
])  # fmt: skip
def test_what_sites_could_not_agree_on_is_refused_before_they_are_founded(here, old, new, message):
    (here / "trial.toml").write_text(FILE.replace(old, new))
    with pytest.raises(BadExperiment) as refusal:
        federation_file.load(here / "trial.toml")
    assert message in str(refusal.value)


def test_the_site_and_the_place_are_named(here):
    assert "net start BUNDLE\n" in command("net", "init", "trial.toml").stderr
    (here / "north.csv").write_text("age,dose,room,ill\n50,1,0,no\n51,,1,yes\n")
    start = "net", "start", "trial/north", "--quiet"
    message = command(*start, code=2).stderr
    assert (
        "north" in message and "north.csv: row 3, column 'dose': '' is a missing value" in message
    )
    (here / "north.csv").write_text("age,dose,room,ill\n50,1,0,perhaps\n51,2,1,yes\n")
    assert "label 'perhaps' is none of no, yes" in command(*start, code=2).stderr
    (here / "north.csv").unlink()
    assert "problem.dataset: no data set 'north.csv' and no such file" in " ".join(
        command(*start, code=2).stderr.split()
    )
