"""Runs on streams: the same draws in every runtime, after every restart, and all counted."""

import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import final_progress, flat, ring, same_bits
from ridge_streams import AGENTS, stream_problem, upper_loss

import diamond
from diamond import hypergradient as hg
from diamond.core.cost_counter import total
from diamond.core.sampling import key
from diamond.engine.many_runs import simulate_many
from diamond.engine.multi_device import MultiDevice
from diamond.engine.round_program import initial_progress
from diamond.engine.simulate import check_arguments
from diamond.engine.site_rehearsal import rehearse

NETWORK, ROUNDS, BATCH = ring(AGENTS), 12, 6
GIVEN = dict(alpha=0.05, beta=0.1, eta=0.3, gamma=0.3, batch=BATCH)
METHOD = diamond.diamond(**GIVEN, hypergradient=hg.neumann(3, 8.0))


def run(**options):
    with without_optimizations():
        return diamond.simulate(stream_problem(), NETWORK, METHOD, ROUNDS, every=6, **options)


def test_every_runtime_goes_the_same_way():
    problem, reference = stream_problem(), run()
    with without_optimizations():
        cut = []
        for devices in (1, 2):
            backend = MultiDevice(problem, NETWORK, BATCH, "blocks", devices)
            first = backend.scatter_progress(initial_progress(METHOD, *problem.start(0), AGENTS))
            after, _ = backend.run_until(METHOD, key(0), first, ROUNDS)
            cut.append(backend.gather((after.state.x, after.state.y, after.spent)))
        sites = rehearse([stream_problem(agents=1)] * AGENTS, NETWORK, METHOD, ROUNDS)
    assert same_bits(*cut)
    np.testing.assert_allclose(
        flat(cut[0][:2]), flat((reference.last_x, reference.last_y)), atol=1e-12
    )
    site_points = [(site.state.x[None], site.state.y[None]) for site in sites]
    np.testing.assert_allclose(
        np.concatenate([flat(o) for o in site_points]),
        flat((reference.last_x, reference.last_y)),
        atol=1e-12,
    )
    assert {"upper_loss_se", "metric_se", "error_se"} <= reference.history.keys()
    counted(reference)


@pytest.mark.wide
def test_a_restart_and_a_lane_go_the_same_way():
    snapshots = []
    copied = lambda s: s._replace(entries=list(s.entries), per_agent=list(s.per_agent))
    reference = run(on_progress=lambda snapshot: snapshots.append(copied(snapshot)))
    again = run(resume=snapshots[1])
    assert same_bits((reference.last_x, reference.last_y), (again.last_x, again.last_y))
    for name in reference.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(reference.history[name], again.history[name])
    (batched,) = simulate_many(
        stream_problem(), NETWORK, [(METHOD, 0)], ROUNDS, every=6, batched=True
    )
    np.testing.assert_allclose(
        batched.history["upper_loss"], reference.history["upper_loss"], rtol=1e-9
    )


def counted(run):
    """xi, zeta, zeta_0 and k links of a chain, whose depth all agents share: every row drawn."""
    from diamond.core.sampling import draw

    depths = [
        int(draw(key(0), t, 0, (None, None), 3, BATCH, "blocks").bits) % 3 for t in range(ROUNDS)
    ]
    assert (run.costs["samples"] == BATCH * (3 * ROUNDS + sum(depths))).all()


@pytest.mark.wide
def test_steps_that_choose_themselves_lead_to_the_solution_of_the_stream():
    with without_optimizations():
        result = diamond.simulate(
            stream_problem(), NETWORK, diamond.diamond(batch=BATCH), 400, every=400
        )
    best = min(
        upper_loss(np.array([a, b]), "personal")
        for a in np.linspace(-6, 1, 29)
        for b in np.linspace(-6, 1, 29)
    )
    assert upper_loss(result.x.mean(0), "personal") - best < 0.1 * (
        upper_loss(np.zeros(2), "personal") - best
    )
    assert result.history["samples"][0] == 0  # nothing is measured before the first round


@pytest.mark.wide
def test_a_method_on_all_rows_takes_a_large_batch():
    method = diamond.interact(alpha=0.05, beta=0.1, hypergradient=hg.conjugate_gradient(2))
    check_arguments(stream_problem(large=40), NETWORK, method, 5, every=5, sampling="blocks")
    with without_optimizations():
        result = final_progress(stream_problem(large=40), NETWORK, method, 5)
    assert (total(result.spent)[:, 0] == 5 * 4 * 40).all()  # xi, zeta, zeta_0, and one for g_yy
