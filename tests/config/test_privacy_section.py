"""The table `privacy` of experiments and federations."""

import re
from pathlib import Path

import pytest

from diamond.config import experiment_file, federation_file
from diamond.config.validation_errors import BadExperiment

EXPERIMENT = {
    "name": "trial",
    "rounds": 50,
    "problem": {"kind": "quadratic", "agents": 4},
    "network": "ring:4",
    "algorithm": {"name": "dsgd", "alpha": 0.1},
    "privacy": {"epsilon": 4, "clip": {"x": 0.5, "y": 2.0}},
}
FEDERATION = {key: EXPERIMENT[key] for key in ("name", "rounds", "algorithm", "privacy")}
FEDERATION |= {"network": "ring:3", "sites": {name: f"{name}:1" for name in "abc"}}


@pytest.mark.quick
def test_the_method_of_a_file_is_private_with_the_rounds_of_the_file():
    experiment = experiment_file.validate(EXPERIMENT, Path(), "file")
    estimator = experiment.algorithm[0].build().estimator
    assert (estimator.budget.epsilon, estimator.budget.rounds) == (4.0, 50)
    assert tuple(estimator.clip) == (0.5, 2.0, 0.5)


@pytest.mark.quick
def test_a_file_in_full_and_the_terms_of_a_federation_read_as_the_same(tmp_path):
    experiment = experiment_file.validate(EXPERIMENT, Path(), "file")
    path = tmp_path / "trial.toml"
    path.write_text(experiment.to_toml(tmp_path))
    again = experiment_file.load(path)
    assert again.to_toml(tmp_path) == path.read_text()
    assert again.algorithm[0].build() == experiment.algorithm[0].build()
    longer = experiment_file.load(path, ["rounds=80"])  # calibrated noise stays that of the file
    assert longer.algorithm[0].build().estimator.budget.rounds == 50
    federation = federation_file.validate(FEDERATION, "file")
    terms = federation_file.from_terms("trial", federation.terms(), federation.sites)
    assert terms.algorithm.build() == federation.algorithm.build()
    assert federation.algorithm.build().estimator.budget.rounds == 50


@pytest.mark.quick
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"algorithm": "dsgd"},
            "privacy: the plain estimator cannot combine privacy with a learned",
        ),
        ({"privacy": {"epsilon": -1.0}}, "privacy.epsilon: "),
        ({"privacy": {"epsilonn": 1.0}}, "privacy.epsilonn: is not a known key"),
        ({"privacy": {"clip": {"w": 1.0}}}, "privacy.clip"),
    ],
)
def test_mistakes_name_their_key(changes, reason):
    with pytest.raises(BadExperiment, match=re.escape(reason)):
        experiment_file.validate(EXPERIMENT | changes, Path(), "file")
    with pytest.raises(BadExperiment, match=re.escape(reason)):
        federation_file.validate(FEDERATION | changes, "file")
