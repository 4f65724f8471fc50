"""Every row of the table of exclusions is provoked by a call, and says what the table says."""

from functools import partial
from itertools import permutations
from types import SimpleNamespace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_mean_method import MeanMethod
from fast_compilation import skip_loss_checks
from helpers import build, quad
from lockstep_agents import build_algorithm, with_own_rows

import diamond
from diamond.config.federation_file import validate
from diamond.core.exclusions import EXCLUSIONS, check_combination, find_exclusions
from diamond.engine.multi_device import MultiDevice
from diamond.engine.site_checks import check_changes
from diamond.engine.site_run import SiteSettings
from diamond.engine.site_run import run as run_site
from diamond.interface.member_changes import check_member_changes
from diamond.interface.traffic import check_exact_means
from diamond.network import changing, complete, interrupted, one_peer, one_way_ring, ring
from diamond.network.channels import delay, drops, noise, quantized, sign
from diamond.network.mixing.lossy_mixer import make_mixer
from diamond.privacy.private_runs import check_private_run
from diamond.sites.identity.certificate_authority import create_federation
from diamond.sites.identity.roster_changes import change_members
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.in_process_transport import InProcessNetwork

RING, ROBUST, LIAR = ring(4), complete(4).robust(), ring(4).with_liar(1, "noise")
JOINING = changing({0: RING})
GIVEN = partial(build_algorithm, "gt_sgd")
FEDERATION = {
    "name": "trial",
    "rounds": 10,
    "network": "ring:4",
    "algorithm": {"name": "gt_sgd", "alpha": 0.1, "beta": 0.1},
    "sites": {f"site{i}": f"127.0.0.1:{5000 + i}" for i in range(4)},
}


@pytest.fixture(autouse=True)
def unchecked_losses(monkeypatch):
    skip_loss_checks(monkeypatch)


def simulate(network, algorithm, problem=None, **options):
    return diamond.simulate(problem or quad(), network, algorithm, 1, progress=False, **options)


def site(network, algorithm=None, folder=None, **options):
    """Make the node of one site."""
    missing = options.get("missing", "wait")
    agent = Agent(with_own_rows(quad(), 0), network, algorithm or GIVEN(), 0, missing=missing)
    return Node(agent, 3, InProcessNetwork().transport(0), folder, **options)


def asynchronous_and_common(name):
    problem = with_own_rows(quad(lower_level="common"), 0)
    Agent(problem, RING, build_algorithm(name), 0, missing="asynchronous")


def private(algorithm):
    return diamond.private(algorithm, rounds=5)


def descent():
    return private(diamond.dsgd(alpha=0.1, batch=3))


def streams(**options):
    loss = lambda x, y, rows: jnp.mean((rows["a"] @ y - jnp.sum(x)) ** 2) + jnp.sum(y**2)
    draw = lambda key, agent: {"a": jax.random.normal(key, (2,))}
    rows = diamond.stream(draw, 4, **options)
    return diamond.Problem(loss, loss, lambda key: (jnp.ones(2), jnp.ones(2)), rows, rows)


def onward(here):
    (here / "start").mkdir()
    site(RING.masked(), folder=here)


def share_loss(here):
    settings = SiteSettings(rounds=1, share_loss=True)
    run_site(quad(), RING, descent(), settings, bundle=here, folder=here)


def sign_change(here, rewinds=False, **terms):
    places = {f"site{i}": f"127.0.0.1:{5000 + i}" for i in range(4)}
    create_federation(here, "trial", places, RING, {"rounds": 9} | terms)
    table = {"graph": "ring", "agents": 4}
    change_members(here, places, RING, table, 4, rewinds=rewinds)


def two_processes(make):
    with patch.object(jax, "process_count", lambda: 2):
        make()


def means_of_a_private_run(network):
    message = SimpleNamespace(mean=np.ones(2), _replace=lambda mean: None)
    check_exact_means(network, [message], {"privacy": True})


CALLS = {
    ("channels", "masked sums"): lambda: RING.masked().through(drops(0.1)),
    ("channels", "robust mixing"): lambda: ROBUST.through(drops(0.1)),
    ("channels", "liars"): lambda: RING.through(drops(0.1)).with_liar(1, "noise"),
    ("channels", "interrupted links"): lambda: RING.every(2).through(sign()),
    ("channels", "exchange_every"): lambda: RING.through(sign()).every(2),
    ("channels", "given interruptions"): lambda: interrupted(RING.through(sign()), [[(0, 1)]]),
    ("compression", "a second compression"): lambda: RING.through(sign(), sign()),
    ("compressed differences", "lossy channels"): lambda: RING.through(sign(), drops(0.1)),
    ("channels with memory", "changing links"): lambda: one_peer(4).through(sign()),
    ("simulated channels", "sites"): lambda: site(RING.through(noise(snr=20))),
    ("channels", "missing='continue'"): lambda: site(RING.through(sign()), missing="continue"),
    ("robust mixing", "masked sums"): lambda: complete(4).masked().robust(),
    ("liars", "masked sums"): lambda: LIAR.masked(),
    ("signatures", "authorities"): lambda: validate(
        FEDERATION | {"signed": True, "authorities": {"pki": "root.pem"}}, "a"
    ),
    ("signatures", "masked sums"): lambda: validate(
        FEDERATION | {"masked": True, "signed": True}, "a"
    ),
    ("robust mixing", "changing links"): lambda: one_peer(4).robust(),
    ("liars", "one-way links"): lambda: one_way_ring(4).with_liar(1, "noise"),
    ("masked sums", "interrupted links"): lambda: RING.every(2).masked(),
    ("robust mixing", "exchange_every"): lambda: ROBUST.every(2),
    ("masked sums", "given interruptions"): lambda: interrupted(RING.masked(), [[(0, 1)]]),
    ("robust mixing", "trackers"): lambda: simulate(ROBUST, GIVEN()),
    ("masked sums", "further masks"): lambda: RING.masked().masked(),
    ("masked sums", "open numbers"): lambda: simulate(RING.masked(), diamond.dsgd()),
    ("masked sums", "missing='continue'"): lambda: site(RING.masked(), missing="continue"),
    ("masked sums", "a deadline"): lambda: validate(
        FEDERATION | {"masked": True, "missing": "continue", "deadline": 3.0}, "a"
    ),
    ("masked sums", "--onward"): onward,
    ("privacy", "a learned alpha"): lambda: private(diamond.dsgd()),
    ("released y and z", "learned steps"): lambda: private(diamond.soba(alpha=0.1)).specialize(
        quad()
    ),
    ("privacy", "a method that is not composed of parts"): lambda: private(diamond.stable()),
    ("privacy", "sums of directions"): lambda: private(diamond.gt_saga(alpha=0.1)),
    ("privacy", "streams"): lambda: descent().specialize(streams()),
    ("privacy", "on_divergence='shrink'"): lambda: simulate(
        RING, descent(), on_divergence="shrink"
    ),
    ("privacy", "stop by a measure"): lambda: simulate(RING, descent(), stop={"metric": 0.1}),
    ("privacy", "--share-loss"): share_loss,
    ("exact means", "interrupted links"): lambda: site(RING.every(2), MeanMethod()),
    ("exact means", "inexact channels"): lambda: simulate(RING.through(quantized(8)), MeanMethod()),
    ("exact means", "masked sums"): lambda: site(RING.masked(), MeanMethod()),
    ("exact means", "robust mixing"): lambda: simulate(ROBUST, MeanMethod()),
    ("exact means", "liars"): lambda: simulate(LIAR, MeanMethod()),
    ("exact means", "privacy"): lambda: means_of_a_private_run(RING),
    ("exact means", "missing='continue'"): lambda: site(RING, MeanMethod(), missing="continue"),
    ("exchange_every", "changing links"): lambda: one_peer(4).every(2),
    ("given interruptions", "interrupted links"): lambda: interrupted(RING.every(2), [[(0, 1)]]),
    ("given interruptions", "one-way links"): lambda: interrupted(one_way_ring(4), [[(0, 1)]]),
    ("a method for symmetric weights", "balanced weights"): lambda: simulate(
        RING.every(2), diamond.extra()
    ),
    ("a method for balanced weights", "directed weights"): lambda: simulate(
        diamond.network.random_digraph(4, 0.5, seed=0), diamond.dsgd()
    ),
    ("sites", "one-way links"): lambda: site(one_way_ring(4)),
    ("sites", "interrupted links"): lambda: site(interrupted(RING, [[(0, 1)], []])),
    ("a deadline", "missing='wait'"): lambda: validate(FEDERATION | {"deadline": 3.0}, "a"),
    ("missing='asynchronous'", "a method for symmetric weights"): lambda: site(
        RING, build_algorithm("extra"), missing="asynchronous"
    ),
    ("missing='asynchronous'", "open numbers"): lambda: validate(
        FEDERATION | {"missing": "asynchronous", "algorithm": "gt_sgd"}, "a"
    ),
    ("missing='asynchronous'", "robust mixing"): lambda: site(
        ROBUST, build_algorithm("dsgd"), missing="asynchronous"
    ),
    ("missing='asynchronous'", "signatures"): lambda: validate(
        FEDERATION | {"missing": "asynchronous", "signed": True}, "a"
    ),
    ("missing='asynchronous'", "privacy"): lambda: site(RING, descent(), missing="asynchronous"),
    ("missing='asynchronous'", "interrupted links"): lambda: site(
        RING.every(2), missing="asynchronous"
    ),
    ("missing='asynchronous'", "several exchanges"): lambda: asynchronous_and_common("ma_dsbo"),
    ("missing='asynchronous'", "a common lower level"): lambda: asynchronous_and_common("d_soba"),
    ("a deadline", "interrupted links"): lambda: validate(
        FEDERATION | {"deadline": 3.0, "missing": "continue", "network": "ring:4,exchange_every=3"},
        "a",
    ),
    ("a deadline", "changing links"): lambda: check_changes(
        quad(), one_peer(4), GIVEN(), "continue", deadline=3.0
    ),
    ("changing members", "channels"): lambda: changing({0: RING.through(drops(0.1))}),
    ("changing members", "one-way links"): lambda: changing({0: one_way_ring(4)}),
    ("changing members", "timed links"): lambda: changing({0: RING.with_links(rate=1e6)}),
    ("changing members", "nested members"): lambda: changing({0: JOINING}),
    ("changing members", "liars"): lambda: changing({0: LIAR}),
    ("changing members", "exchange_every"): lambda: JOINING.every(2),
    ("changing members", "given interruptions"): lambda: interrupted(JOINING, [[(0, 1)]]),
    ("changing members with missing='continue'", "open numbers"): lambda: check_member_changes(
        quad(), diamond.gt_sgd(), "continue"
    ),
    ("missing='continue'", "--rewind"): partial(sign_change, missing="continue", rewinds=True),
    ("changing members", "missing='asynchronous'"): partial(sign_change, missing="asynchronous"),
    ("privacy", "--rewind"): partial(sign_change, rewinds=True, privacy={"epsilon": 1.0}),
    ("changing members", "sites"): lambda: site(JOINING),
    ("changing members", "several devices"): lambda: simulate(JOINING, GIVEN(), devices=2),
    ("changing members", "parallel runs"): lambda: make_mixer(JOINING),
    ("changing members", "on_progress"): lambda: simulate(JOINING, GIVEN(), on_progress=print),
    ("changing members", "streams"): lambda: simulate(JOINING, GIVEN(), streams()),
    ("changing members", "a table of rows"): lambda: simulate(
        JOINING, build("saba", alpha=0.1, beta=0.1, delta=0.1, batch=3)
    ),
    ("changing members", "a state without restart"): lambda: simulate(JOINING, MeanMethod()),
    ("changing members", "push-sum weights"): lambda: simulate(JOINING, build_algorithm("sgp")),
    ("several devices", "channels"): lambda: MultiDevice(
        quad(), RING.through(drops(0.1)), 3, "blocks", 2
    ),
    ("several devices", "liars"): lambda: MultiDevice(quad(), LIAR, 3, "blocks", 2),
    ("several devices", "masked sums"): lambda: simulate(RING.masked(), GIVEN(), devices=2),
    ("several devices", "skipping agents"): lambda: MultiDevice(
        quad(), interrupted(RING, [[(0, 1), (0, 3)]], [[0]]), 3, "blocks", 2
    ),
    ("several processes", "sharded models"): lambda: two_processes(
        lambda: simulate(RING, GIVEN(), shard="size", devices=2)
    ),
    ("memory='least'", "several devices"): lambda: simulate(
        RING, GIVEN(), memory="least", devices=2
    ),
    ("batched=True", "stop"): lambda: diamond.compare(
        quad(), RING, {"a": GIVEN()}, rounds=1, batched=True, stop={"metric": 1.0}
    ),
    ("a table of rows", "streams"): lambda: simulate(RING, diamond.saba(batch=3), streams(large=9)),
    ("all rows", "streams"): lambda: simulate(RING, diamond.interact(), streams()),
}


@pytest.mark.parametrize("pair", CALLS, ids=" with ".join)
def test_a_combination_is_refused_with_the_words_of_the_table(pair, tmp_path):
    call, (row, *_) = CALLS[pair], [row for row in EXCLUSIONS if pair in row.pairs]
    takes_folder = call in (onward, share_loss) or isinstance(call, partial)
    with pytest.raises(ValueError) as error:
        call(tmp_path) if takes_folder else call()
    assert f" cannot combine {' with '.join(pair)}: {row.reason}; " in str(error.value)


def test_every_row_is_provoked_and_every_pair_has_one_row():
    provoked = [row for pair in CALLS for row in EXCLUSIONS if pair in row.pairs]
    assert {*provoked} == {*EXCLUSIONS} and len(provoked) == len(CALLS)
    pairs = [frozenset(pair) for row in EXCLUSIONS for pair in row.pairs]
    assert len({*pairs}) == len(pairs)


ADDITIONS = {
    "channels": lambda network: network.through(drops(0.1)),
    "robust mixing": lambda network: network.robust(),
    "liars": lambda network: network.with_liar(1, "noise"),
    "masked sums": lambda network: network.masked(),
    "timed links": lambda network: network.with_links(rate=1e6),
    "exchange_every": lambda network: network.every(2),
    "changing members": lambda network: changing({0: network}),
}


def test_networks_take_what_the_table_does_not_exclude():
    accepted = []
    for first, second in permutations(ADDITIONS, 2):
        if first == "changing members":
            continue
        network = ADDITIONS[first](complete(4))
        if find_exclusions(network.features | {second: True}):
            with pytest.raises(ValueError, match="cannot combine"):
                ADDITIONS[second](network)
        else:
            accepted.append((first, second))
            ADDITIONS[second](network)
    assert ("robust mixing", "liars") in accepted and ("channels", "timed links") in accepted


def test_what_the_table_does_not_exclude_is_accepted():
    one_peer(4).through(drops(0.1))
    one_way_ring(4).through(quantized(8, feedback="error"))
    one_way_ring(4).every(2)
    RING.through(sign(), delay(1))
    for keys in ({"signed": True, "missing": "continue", "deadline": 3.0}, {"masked": True}):
        validate(FEDERATION | keys, "a")
    site(RING.through(sign(), delay(1)))
    site(RING.every(2))
    check_private_run(descent(), quad(), 1)


def test_scopes_and_unknown_features():
    used = {"privacy": True, "--rewind": True}
    check_combination(used, "a simulation")
    with pytest.raises(ValueError, match=r"^trial cannot combine privacy with --rewind: "):
        check_combination(used, "trial", "sites")
    with pytest.raises(ValueError, match=r"; take none$"):
        check_combination({"channels": 1, "liars": (2,)}, "a", remedy="take none")
    with pytest.raises(KeyError, match="chanels"):
        check_combination({"chanels": False}, "a")
    assert find_exclusions({"channels": True, "liars": False}) == []
