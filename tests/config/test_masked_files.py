"""Masked sums in files: as the method makes them, written back in full, and mistakes named."""

import tomllib

import pytest

from diamond.config.components import read_network
from diamond.config.federation_file import validate
from diamond.config.validation_errors import BadExperiment

FILE = {
    "name": "trial",
    "rounds": 10,
    "network": "ring:4",
    "algorithm": {"name": "gt_sgd", "alpha": 0.1, "beta": 0.1},
    "sites": {f"site{i}": f"127.0.0.1:{5000 + i}" for i in range(4)},
}


def test_a_federation_is_masked_beside_its_network():
    for masked, limit in ((True, 2.0**20), (1000.0, 1024), (False, None)):
        federation = validate(FILE | {"masked": masked}, "trial.toml")
        assert federation.build_network().mask_limit == limit
        again = validate(tomllib.loads(federation.to_toml()), "again")
        assert again.build_network().mask_limit == limit and again.terms() == federation.terms()
    assert "masked" not in validate(FILE, "trial.toml").terms()


def test_a_network_is_masked_in_its_table_or_text():
    part = read_network({"graph": "ring", "agents": 4, "masked": 100.0})
    assert part.build().mask_limit == 128 and part.build().name == "ring(4), masked"
    assert read_network({"graph": part.name, **part.options}).build().mask_limit == 128
    assert read_network("ring:4,masked=true").build().mask_limit == 2.0**20


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network": "path:4"}, "agent 0 has 1 neighbour, whose message is the whole sum"),
        ({"missing": "continue"}, "missing: ring(4), masked cannot combine masked sums with"),
        ({"signed": True}, "signed: ring(4), masked cannot combine signatures with masked sums"),
        ({"algorithm": "gt_sgd"}, "sent in the clear; give alpha"),
        ({"network": "complete:4,robust=clipped"}, "masked: complete(4), clipped against 1 liar"),
        (
            {
                "network": {
                    "graph": "ring",
                    "agents": 4,
                    "channel": {"name": "quantized", "bits": 4},
                }
            },
            "change messages on their way",
        ),
        ({"masked": -1.0}, "greater than 0"),
    ],
)
def test_what_cannot_be_masked_is_named(changes, words):
    with pytest.raises(BadExperiment) as error:
        validate(FILE | {"masked": True} | changes, "trial.toml")
    assert words in str(error.value)
