"""Members that change in every kind of federation: the bits of the simulation."""

import json
import warnings
from functools import cache, partial

import jax.numpy as jnp
import numpy as np
import pytest
from changing_cluster import MEMBERS, ROUNDS, ChangingCluster, check_bits, simulate
from fast_compilation import skip_loss_checks, without_optimizations
from lockstep_agents import build_algorithm
from rollback_scenarios import script_loss_increase
from two_faced_site import found_signers, signing

import diamond
from diamond.algorithms.parts import adaptive_steps
from diamond.auto.adaptive_optimizers import DistanceOverGradients
from diamond.catalogue import maker
from diamond.network import changing, complete, path, ring, star
from diamond.privacy.ledger import LEDGER_FILE, write_genesis
from diamond.schedules import deferred
from diamond.sites.memory.epoch_entry import earlier_folders

# Agent 4 joins in round 5, agent 1 leaves in round 9; after the end, 5 joins and 0 leaves.
SOLVED = changing(
    {0: ring(4), 5: ring(5), 9: path(4), 200: star(4)},
    members={0: [0, 1, 2, 3], 5: [0, 1, 2, 3, 4], 9: [0, 2, 3, 4], 200: [2, 3, 4, 5]},
)
# One leaves for one that joins, before the end of the steps and after it: one compiled program.
SWAPPED = changing(
    {0: ring(3), 6: ring(3), 100: ring(3)},
    members={0: [0, 1, 2], 6: [0, 2, 3], 100: [0, 3, 4]},
)
GROWING = changing(
    {0: ring(3), 4: ring(4), 12: path(3)},
    members={0: [0, 1, 2], 4: [0, 1, 2, 3], 12: [0, 2, 3]},
)


@cache
def entrywise(level):
    """A problem whose derivatives are entry by entry, of the same bits in any program."""
    random = np.random.default_rng(0)

    def part():
        weights, targets = random.random((40, 3)) + 0.5, random.normal(1, 1, (40, 3))
        return {"a": weights.astype(np.float32), "b": targets.astype(np.float32)}

    mean = lambda terms: jnp.mean(jnp.sum(terms, axis=-1))
    f = lambda x, y, rows: mean((y - rows["b"]) ** 2) + 0.1 * jnp.sum(x**2)
    g = lambda x, y, rows: mean(rows["a"] * y**2 + (y * x) ** 2 - rows["b"] * y)
    alone = lambda x, rows: mean(rows["a"] * (x**2 - rows["b"]) ** 2)
    start = jnp.ones(3, jnp.float32)
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        if level == "none":
            return diamond.Problem(alone, None, lambda key: start, [part() for _ in range(6)])
        rows = [[part() for _ in range(6)] for _ in range(2)]
        return diamond.Problem(f, g, lambda key: (start, start), *rows, lower_level=level)


KILLS = [(0, 4), (1, 5), (4, 5), (2, 6), (1, 9), (3, 9), (4, 14), (3, 201), (5, 203)]


@pytest.mark.wide
@pytest.mark.parametrize("level", ["none", "personal", "common"])
def test_quasi_newton_steps_begin_again_at_one_x(tmp_path, float32, level):
    fixed = tmp_path, maker("solve")(batch=1), SOLVED, entrywise(level)
    with without_optimizations():
        cluster = ChangingCluster(*fixed, kills=KILLS, rounds=400)
        found = cluster.run()
        check_bits(cluster, found)
    assert cluster.deaths == len(KILLS) and found[1].t == 9
    for end in found[2:]:
        np.testing.assert_array_equal(end.state.x, found[2].state.x)
    if level != "common":  # which takes more rounds: one for each question about y
        assert 9 < found[0].t < 200 < found[2].t < 400
        assert all(end.end_reason.startswith(("converged", "stopped")) for end in found[2:])


def test_steps_that_have_ended_begin_again_with_other_members(tmp_path, float32):
    fixed = tmp_path, maker("solve")(batch=1), SWAPPED, entrywise("none")
    with without_optimizations():
        cluster = ChangingCluster(*fixed, rounds=200)
        found, run = cluster.run(), simulate(cluster)
        check_bits(cluster, found)
    assert found[1].t == 6 < found[2].t < 100 < found[0].t == run.rounds < 200
    np.testing.assert_array_equal(found[4].state.x, found[0].state.x)
    rounds = run.history["round"].tolist()
    assert found[2].t in rounds and 100 not in rounds  # rounds until the change are not made
    assert abs(sum(run.traffic.values()) - run.history["bytes"][-1]) < len(run.traffic)
    assert run.traffic[0, 4] > 0 < run.messages


@pytest.mark.wide
@pytest.mark.parametrize("name", ["bome", "diamond"])
def test_learned_steps_begin_again_and_roll_back_within_one_set_of_members(
    tmp_path, monkeypatch, name
):
    """alpha of bome is distance over gradients, whose loss is monitored; that of diamond is not."""
    script_loss_increase(monkeypatch, high=9, low=6)
    without_rest = partial(DistanceOverGradients, rest=0)
    monkeypatch.setattr(adaptive_steps, "DistanceOverGradients", without_rest)
    monkeypatch.setattr(deferred, "reestimation_rounds", lambda t: [r for r in (1, 6, 9) if r <= t])
    kills = [(0, 3), (3, 5), (1, 8), (2, 10), (0, 12), (2, 13)]
    algorithm = maker(name)(batch=5) if name == "diamond" else diamond.bome(beta=0.1, batch=5)
    cluster = ChangingCluster(tmp_path, algorithm, GROWING, kills=kills, rounds=15)
    found = cluster.run()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = simulate(cluster)
    rollbacks = [str(w.message) for w in caught if "back to round" in str(w.message)]
    assert len(rollbacks) == (name == "bome") and cluster.deaths == len(kills)
    assert all("back to round 6 with steps 0.25 times as long" in text for text in rollbacks)
    assert [end.t for end in found] == [15, 12, 15, 15]
    assert run.history["round"].tolist() == sorted(run.history["round"].tolist())
    for i, end in enumerate(found):
        for part in ("x", "y", "u"):
            wanted, own = (np.asarray(getattr(s, part)) for s in (run.state, end.state))
            np.testing.assert_allclose(own, wanted[i], rtol=1e-9, atol=1e-12)
    assert 1e-6 < np.abs(np.asarray(run.last_x)).max() < 10


@pytest.mark.wide(keep=["masked"])
@pytest.mark.parametrize("kind", ["robust", "masked"])
def test_robust_mixing_and_masked_sums(tmp_path, kind):
    mix = {"robust": lambda n: complete(n).robust(), "masked": lambda n: complete(n).masked()}[kind]
    networks = {t: mix(len(members)) for t, members in MEMBERS.items()}
    algorithm = build_algorithm("dsgd" if kind == "robust" else "gt_sgd")
    kills = [(1, 4), (4, 5), (0, 13), (5, 14)]
    cluster = ChangingCluster(tmp_path, algorithm, changing(networks, members=MEMBERS), kills=kills)
    found = cluster.run()
    assert [end.t for end in found] == [13, 9, 18, 18, 18, 18] and cluster.deaths == 4
    check_bits(cluster, found)
    if kind == "masked":
        keys = {json.loads(p.read_text())["secret"] for p in tmp_path.glob("2/**/masks.json")}
        assert len(keys) == len(MEMBERS)  # every set of members has masks of its own


def test_signed_messages(tmp_path):
    signers, _ = found_signers(tmp_path / "federation", ring(6))
    sign = signing(signers)
    options = lambda number: {"sign": sign[number]}
    cluster = ChangingCluster(
        tmp_path, build_algorithm("gt_sgd"), kills=[(2, 4), (3, 10)], options_of=options
    )
    found = cluster.run()
    check_bits(cluster, found)
    assert not list(tmp_path.glob("*/**/proofs/*.json"))
    assert [folder.name for folder in earlier_folders(tmp_path / "2" / "epoch-13", 13)] == [
        "2",
        "epoch-4",
        "epoch-9",
    ]


@pytest.mark.wide
def test_private_sites_keep_and_begin_ledgers(tmp_path):
    pytest.importorskip("dp_accounting")
    plain = diamond.gt_sgd(alpha=0.05, beta=0.1, order="atc", batch=4)
    algorithm = diamond.private(plain, 3.0, clip=0.5, rounds=ROUNDS)
    for i in range(6):
        (tmp_path / f"bundle{i}").mkdir()
        write_genesis(tmp_path / f"bundle{i}", "trial", str(i))
    options = lambda number: {"ledger_folder": tmp_path / f"bundle{number}"}
    cluster = ChangingCluster(
        tmp_path, algorithm, kills=[(0, 5), (4, 6), (2, 14)], options_of=options
    )
    found = cluster.run()
    check_bits(cluster, found)
    first = {i: min(t for t, members in MEMBERS.items() if i in members) for i in range(6)}
    for i, end in enumerate(found):
        lines = (tmp_path / f"bundle{i}" / LEDGER_FILE).read_text().splitlines()
        rounds = [line["round"] for line in map(json.loads, lines) if "message" in line]
        assert rounds == [*range(first[i], end.t)]  # each round is charged once
