"""Every method of the catalogue: its contract, and where it ends up on a problem that is solved.

Which test a method gets follows from its parts: exact where x is corrected, a bias that halves
with the steps where it is only averaged, one that halves as lam doubles for penalties. Methods for
minimax and compositional problems lead to the root of a direction of their own.
"""

import inspect
from functools import cache, partial
from importlib import import_module

import jax
import numpy as np
import pytest
from helpers import METHODS, TRACKED, build, final_progress, logistic, quad, ring, same_bits

import diamond
from diamond import catalogue
from diamond import hypergradient as hg
from diamond.algorithms.parts import ComposedAlgorithm
from diamond.algorithms.parts.communication_rules import Gossip, Push
from diamond.algorithms.parts.directions import Implicit, Penalty
from diamond.algorithms.parts.provenance import ALIKE, EXACT, PENALIZED
from diamond.algorithms.parts.value_function import Barrier, Moreau
from diamond.catalogue.methods_table import provenance_of
from diamond.catalogue.registry import package_methods
from diamond.core.sampling import key
from diamond.engine.round_program import initial_progress, run_round
from diamond.engine.simulate import check_arguments
from diamond.hypergradient.zeroth_order import ZerothOrder
from diamond.network.mixing.mixer import mixer
from diamond.schedules.deferred import ResolutionContext, resolve

GIVEN = dict(alpha=0.04, beta=0.2, delta=0.2, eta=0.5, gamma=0.5, theta=0.5, period=3, inner=2)
ROUNDS = 1500
SPECIAL = {"gda", "optimistic_gda", "scgd"}  # for minimax and compositional problems
OWN = {"stable", "rsvrb", "vrbo", "gossip_dsbo"}  # not made of parts; x is averaged


def made(name, **options):
    """The method with all its numbers given."""
    special = {"inner": 40} if name == "itd" else {}  # its bias is (1 - beta mu)^inner
    envelope = {"gamma": 1.0}
    special |= {"duet": {"mu": 0.0}, "meha": envelope, "sun_dsbo": envelope}.get(name, {})
    special |= {"steps": "learned"} if name == "solve" else {}  # the others end by themselves
    return build(name, **{"hypergradient": hg.exact(), "batch": 2} | GIVEN | special | options)


def kind(name):
    """What is to be expected of where it ends."""
    method = made(name)
    if name in SPECIAL:
        return "special"
    if name in OWN:
        return "steps"
    if not isinstance(method, ComposedAlgorithm):
        return "exact"
    if method.lower_levels == ("common",) and isinstance(method.directions, Implicit):
        return "elsewhere"  # each agent's own inverse
    if isinstance(method.directions, Barrier):
        return "barrier"
    if isinstance(method.hypergradient, ZerothOrder):
        return "random"
    if isinstance(method.directions, Penalty | Moreau):
        return "lam"
    return "steps" if isinstance(method.x.communication, Gossip | Push) else "exact"


def level(name):
    return METHODS[name]().lower_levels[0]


def problem(name, **options):
    return quad(**{"agents": 6, "rows": 4, "noise": 0.0, "lower_level": level(name)} | options)


def error(name, network, options=(), rounds=ROUNDS, **about):
    """How far x ends from the solution, relative to it; the largest over the agents."""
    q = problem(name, **about)
    state = final_progress(q, network, made(name, **dict(options)), rounds).state
    return np.abs(np.asarray(state.x) - q.minimizer()).max() / np.abs(q.minimizer()).max()


NETWORKS = {"ring": ring(6), "star": diamond.network.star(6)}  # one program: both are dense


@pytest.mark.wide(keep=["diamond", "sparkle"])
@pytest.mark.parametrize("name", [name for name in METHODS if kind(name) == "exact"])
def test_it_reaches_the_solution_of_agents_that_differ(name):
    errors = {where: error(name, network) for where, network in NETWORKS.items()}
    assert max(errors.values()) < 1e-6, errors


@pytest.mark.wide
@pytest.mark.parametrize("name", TRACKED)
def test_tracked_algorithms_reach_the_minimizer_to_the_last_digits(name):
    """Without noise, at constant steps, in spite of the agents' differences."""
    q, larger = problem(name), dict(alpha=0.1, beta=0.5)
    state = final_progress(q, NETWORKS["ring"], made(name, **larger), ROUNDS).state
    best = q.minimizer()
    assert np.linalg.norm(best) > 0.3  # not where it started
    np.testing.assert_allclose(state.x, np.tile(best, (6, 1)), atol=1e-12)
    np.testing.assert_allclose(state.y, q.lower_solution(best), atol=1e-12)


@pytest.mark.wide
@pytest.mark.parametrize("name", [name for name in METHODS if kind(name) == "steps"])
def test_averaged_only_its_bias_halves_with_the_steps(name):
    steps = {k: GIVEN[k] / 4 for k in ("alpha", "beta", "delta", "theta")}
    if level(name) == "personal":  # where y is solved exactly whatever its step
        steps = {"alpha": GIVEN["alpha"] / 4}
    halved = {k: v / 2 for k, v in steps.items()}
    large, small = (error(name, NETWORKS["ring"], given) for given in (steps, halved))
    assert 1e-3 < small < 0.2
    ratio = large / small  # of gossip_dsbo, theta times the steps: between 2 and 4
    assert ratio == pytest.approx(3 if name == "gossip_dsbo" else 2, rel=0.1)


def test_the_table_of_methods_says_what_the_tests_of_this_file_show():
    expected = {"exact": EXACT, "steps": ALIKE, "lam": PENALIZED}
    checks = {name: provenance_of(METHODS[name]).check for name in METHODS}
    own = {name: check for name, check in checks.items() if check not in expected.values()}
    assert {*own} == {"itd", *(name for name in METHODS if kind(name) not in expected)}
    for name in METHODS.keys() - own.keys():
        assert checks[name] == expected[kind(name)], name


@pytest.mark.wide
def test_the_bias_of_differentiating_through_steps_shrinks_with_their_number():
    one = diamond.network.complete(1)
    few, more = (error("itd", one, {"inner": n}, agents=1) for n in (5, 20))
    assert 1e-4 < more < 0.3 * few


@pytest.mark.wide
@pytest.mark.parametrize("name", [name for name in METHODS if kind(name) == "lam"])
def test_the_bias_of_a_penalty_halves_as_lam_doubles(name):
    weight = "c" if isinstance(made(name).directions, Moreau) else "lam"
    large, small = (error(name, NETWORKS["star"], {weight: lam}) for lam in (20.0, 40.0))
    assert 1e-3 < small < 0.1 and large / small == pytest.approx(2, rel=0.2)


@pytest.mark.wide
def test_the_bias_of_bome_shrinks_with_its_steps():
    """lam jumps at the solution, so x and y stay a distance of the order of their steps away."""
    given = dict(delta=0.5, inner=40)
    large, small = (
        error("bome", NETWORKS["star"], given | {"alpha": a, "beta": a}, 2 * ROUNDS)
        for a in (0.04, 0.004)
    )
    assert small < 0.02 and small < 0.3 * large


@pytest.mark.wide
@pytest.mark.parametrize("name", [name for name in METHODS if kind(name) == "elsewhere"])
def test_inverses_of_ones_own_lead_elsewhere_unless_agents_are_alike(name):
    """The inverse of a mean is not the mean of inverses; MDBO and VRDBO are exact for one g."""
    assert error(name, NETWORKS["ring"]) > 0.05
    assert among_alike(name) < 1e-6


@pytest.mark.wide(keep=["gda"])
@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_methods_of_special_problems_lead_to_the_root_of_their_own_direction(name):
    """f_x of gda, without f_y; f_x - g_xy f_y of scgd, as if g_yy were I: linear in x."""
    q, network = problem(name), NETWORKS["ring"]

    def direction(x):
        y = q.lower_solution(x)
        f_y = y - q.a + np.einsum("ixy,x->iy", q.D, x)
        own = q.P @ x + q.c + np.einsum("ixy,iy->ix", q.D, y)
        return (own + (name == "scgd") * np.einsum("iyx,iy->ix", q.B, f_y)).mean(0)

    at_zero = direction(np.zeros(3))
    slope = np.stack([direction(e) - at_zero for e in np.eye(3)], axis=1)
    root = np.linalg.solve(slope, -at_zero)
    x = final_progress(q, network, made(name), ROUNDS).state.x
    np.testing.assert_allclose(x, np.tile(root, (6, 1)), atol=1e-8)
    assert np.abs(root - q.minimizer()).max() > 0.05


@cache
def alike(lower_level):
    """Six agents with the rows of one, and the problem of that one: checked once a lower level."""
    q = quad(agents=1, rows=4, noise=0.0, lower_level=lower_level)
    rows = {part: [q.rows[part][0]] * 6 for part in ("train", "valid")}
    given = q.upper, q.lower, q.init
    return diamond.Problem(*given, **rows, lower_level=lower_level), q


def among_alike(name):
    """Its error where all agents are alike: the same program, whatever the rows."""
    known, q = alike(level(name))
    x = np.asarray(final_progress(known, NETWORKS["ring"], made(name), ROUNDS).state.x)
    return np.abs(x - q.minimizer()).max() / np.abs(q.minimizer()).max()


UNTRACKED = [name for name in METHODS if kind(name) == "steps" and name != "itd"]


@pytest.mark.wide
@pytest.mark.parametrize("name", UNTRACKED)
def test_among_agents_that_are_alike_nothing_is_left_of_that_bias(name):
    assert among_alike(name) < 1e-6


@pytest.mark.wide(keep=["exact_diffusion", "gossip_dsbo", "rsvrb", "sgp", "vrbo"])
@pytest.mark.parametrize("name", METHODS)
def test_state_and_messages_keep_tree_shape_and_type(name):
    """In single precision where double is allowed; the runs above are in double, and could not
    be one loop if a type changed.
    """
    known = logistic(rows=4, dtype="float32", lower_level=level(name))
    algorithm = made(name, hypergradient=hg.neumann_sum(3, 3.0))
    algorithm = resolve(algorithm, ResolutionContext(known, None, algorithm.batch, 0)).algorithm
    first = initial_progress(algorithm, *known.start(0), known.agents)
    step = partial(
        run_round, algorithm, known.objectives(algorithm.batch), mixer(ring(known.agents))
    )
    described = lambda a: jax.tree.map(lambda a: (a.shape, a.dtype, a.weak_type), a)
    with jax.numpy_rank_promotion("raise"):  # the core relies on no silent broadcast
        after = jax.eval_shape(partial(step, key(0), "blocks"), first)
    assert described(after) == described(jax.eval_shape(lambda a: a, first))
    again = jax.tree.unflatten(jax.tree.structure(algorithm), jax.tree.leaves(algorithm))
    assert same_bits(again, algorithm)


@pytest.mark.parametrize("lower_level", ["personal", "common", "none"])
def test_the_wrong_lower_level_is_refused_with_the_names_of_those_that_solve_it(lower_level):
    known, network = quad(lower_level=lower_level), ring(4)
    right = catalogue.methods_for(lower_level)
    assert len(right) >= 10
    for name, make in METHODS.items():
        if name in right:
            check_arguments(known, network, make(), 1, every=1, sampling="blocks")
        else:
            with pytest.raises(ValueError, match="lower level, which this algorithm") as refused:
                check_arguments(known, network, make(), 1, every=1, sampling="blocks")
            assert all(other in str(refused.value) for other in right)


def test_no_method_takes_more_than_85_lines():
    modules = {
        name: import_module(place) for name, place in package_methods().items() if name in METHODS
    }
    lengths = {name: len(inspect.getsource(m).splitlines()) for name, m in modules.items()}
    assert {name: n for name, n in lengths.items() if n > 85} == {}
