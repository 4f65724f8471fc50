"""Networks by edges between named sites: their agents have the order of the sites."""

import tomllib

import pytest
from fast_compilation import skip_loss_checks
from tiny_experiment import TINY

from diamond.config import federation_file
from diamond.config.experiment_file import validate
from diamond.config.validation_errors import BadExperiment

SITES = ["west", "north", "east"]
EDGES = [["north", "west"], ["west", "east"]]
FEDERATION = """
rounds = 3
network = {edges = [["north", "west"], ["west", "east"]], mixing = "metropolis"}
algorithm = {name = "gt_sgd", batch = 2, alpha = 0.1, beta = 0.1, hypergradient = "exact"}
[sites]
west = "127.0.0.1:7101"
north = "127.0.0.1:7102"
east = "127.0.0.1:7103"
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    for site in SITES:
        (tmp_path / f"{site}.csv").write_text("age,days\n" + "1,2\n2,3\n3,5\n4,4\n" * 3)
    return tmp_path


def experiment(here, network, **problem):
    table = {"kind": "regression", "label": "days", "dataset": {s: f"{s}.csv" for s in SITES}}
    return validate(TINY | {"problem": table | problem, "network": network}, here, "x.toml")


def test_the_agents_of_an_experiment_are_the_sites_in_their_order(here):
    found = experiment(here, {"edges": EDGES, "gamma": 0.5})
    network = found.network[0].build()
    assert network.labels == tuple(SITES) and network.edges == [(0, 1), (0, 2)]
    assert network.damping == 0.5
    table = tomllib.loads(found.to_toml(here))["network"]
    assert table["agents"] == SITES and table["graph"] == "from_edges"
    again = experiment(here, table | {"agents": SITES[::-1]})  # the sites decide
    assert again.network[0].build().labels == tuple(SITES)
    numbered = experiment(here, {"edges": [[0, 1], [1, 2]]}).network[0].build()
    assert numbered.labels == (0, 1, 2)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"edges": [["north", "wset"]]}, "network.edges: no site 'wset'; did you mean west?"),
        ({"edges": [["north", "west"]]}, "network.edges: site 'east' has no edge; join it"),
        ({"edges": [["north"]]}, "is no pair of two agents"),
        ({"edges": 3}, "network.edges: must be a list"),
        ({"edges": [[0, 1], [1, 2]], "mixing": "best"}, "no mixing rule 'best'"),
    ],
)
def test_edges_that_do_not_fit_the_sites_are_refused(here, network, message):
    with pytest.raises(BadExperiment) as refusal:
        experiment(here, network)
    assert message in str(refusal.value)


def test_names_need_agents_with_names(here):
    quadratic = {"kind": "quadratic", "agents": 3}
    raw = TINY | {"problem": quadratic, "network": {"edges": EDGES}}
    with pytest.raises(BadExperiment, match=r"name north, west, east, but .* agents = \[.north."):
        validate(raw, here, "x.toml")
    raw["network"] = {"edges": EDGES, "agents": SITES}
    assert validate(raw, here, "x.toml").network[0].build().labels == tuple(SITES)


def test_the_agents_of_a_federation_are_its_sites(here):
    (here / "trial.toml").write_text(FEDERATION)
    found = federation_file.load(here / "trial.toml")
    assert found.build_network().labels == tuple(SITES)
    terms = found.terms()
    assert terms["network"]["agents"] == SITES
    again = federation_file.from_terms("trial", terms, found.sites)
    assert again.build_network().labels == tuple(SITES)
    network = federation_file.build_roster_network(terms["network"])
    assert network.edges == [(0, 1), (0, 2)]
    for old, new, message in (
        ('"east"]]', '"south"]]', "network.edges: no site 'south'"),
        (
            "mixing =",
            'agents = ["north", "west", "east"], mixing =',
            "list the sites in this order",
        ),
    ):
        (here / "trial.toml").write_text(FEDERATION.replace(old, new))
        with pytest.raises(BadExperiment) as refusal:
            federation_file.load(here / "trial.toml")
        assert message in str(refusal.value)
