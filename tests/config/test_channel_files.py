"""Channels and one-way networks in files: as the functions make them, and mistakes named."""

from pathlib import Path

import pytest
from tiny_experiment import TINY, RecordingListener, run_experiment, tiny

from diamond.config.experiment_file import load, validate
from diamond.config.validation_errors import BadExperiment
from diamond.experiment import jobs


class Killed(Exception):
    pass


THROUGH = {
    "graph": "ring",
    "agents": 3,
    "channel": [{"name": "quantized", "bits": 3}, {"name": "delay", "rounds": 1}],
    "gamma": 0.25,
}


@pytest.mark.wide
def test_a_file_is_written_back_in_full_and_its_run_resumed_bit_for_bit(tmp_path):
    experiment = tiny(network=THROUGH, checkpoint_seconds=0.0)
    (part,) = experiment.network
    assert part.build().name == "ring(3) through quantized(3), delay(1)"
    assert part.options["channel"][0] == {"name": "quantized", "bits": 3, "feedback": "difference"}
    (tmp_path / "again.toml").write_text(experiment.to_toml(tmp_path))
    assert load(tmp_path / "again.toml").network == experiment.network
    whole = run_experiment(experiment, tmp_path / "whole")
    assert whole["network"]["channels"] == ["quantized(3)", "delay(1)"]

    def killed(entries):
        if entries[-1]["round"] == 12:
            raise Killed

    with pytest.raises(Killed):
        run_experiment(experiment, tmp_path / "half", RecordingListener(killed))
    seen = []
    watch = RecordingListener(lambda entries: seen.append(entries[-1]["round"]))
    assert run_experiment(experiment, tmp_path / "half", watch)["digest"] == whole["digest"]
    assert seen[0] > 0


MISTAKES = {
    "name": ({"channel": {"name": "drop"}}, "network.channel.name: no channel 'drop'"),
    "option": ({"channel": [{"name": "drops", "los": 0.1}]}, "channel[0].los: is no option"),
    "value": ({"channel": [{"name": "drops", "loss": 1.0}]}, "channel[0]: loss = 1.0"),
    "gamma": ({"channel": "sign", "gamma": "x"}, "network.gamma: must be a number"),
    "range": ({"channel": "sign", "gamma": 2.0}, "gamma = 2.0"),
    "together": ({"channel": ["sign", {"name": "drops", "loss": 0.1}]}, "differences need every"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_key(name):
    given, message = MISTAKES[name]
    with pytest.raises(BadExperiment) as error:
        validate(TINY | {"network": {"graph": "ring", "agents": 3} | given}, Path(), "tiny.toml")
    assert message in str(error.value)


def test_a_method_that_would_end_elsewhere_is_refused_before_the_run():
    given = {"network": "random_digraph:3,p=0.6,seed=2", "algorithm": ["diamond", "dsgd"]}
    experiment = tiny(**given)
    with pytest.raises(BadExperiment, match=r"algorithm\[1\]: dsgd: .* needs balanced weights"):
        jobs.build_problem(experiment, "tiny.toml")
