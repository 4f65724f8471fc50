"""Every method of the catalogue through every kind of channel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import METHODS, build, final_progress, quad, ring

from diamond.core.sampling import ExchangeId, key
from diamond.interface.traffic import message_shapes
from diamond.network import channels
from diamond.network.mixing.lossy_mixer import make_mixer
from diamond.schedules.deferred import replace_deferred, specialize

OPTIONS = {
    "delay": [{"rounds": 0}, {"rounds": 2}],
    "drops": [{"loss": 0.3}, {"loss": 0.3, "burst": 4}, {"loss": 0.3, "known": "receiver"}],
    "fading": [{"knowledge": "both"}, {"knowledge": "none"}],
    "low_rank": [{"rank": 1}],
    "noise": [{"snr": 20}, {"sigma": 0.1, "accumulate": False}],
    "over_the_air": [{"power": 2.0}],
    "quantized": [{"bits": 4}],
    "random": [{"terms": 1}],
    "rounded": [{"kind": "float16"}, {"kind": "bfloat16", "feedback": "none"}],
    "sign": [{"feedback": "error"}],
    "top": [{"share": 0.5}, {"terms": 1, "feedback": "error"}],
}
STEPS = dict(alpha=0.01, beta=0.1, delta=0.1, batch=3)


FEW = "bome gossip_dsbo gt_sgd itd push_diging stable".split()  # no two have the same parts


def distinct_messages(names):
    """Messages of all stages of these methods, on each lower level they solve: {shapes: who}."""
    methods_by_message = {}
    for name, make in ((name, METHODS[name]) for name in names):
        for level in make().lower_levels:
            problem = quad(lower_level=level)
            method = specialize(make(), problem, ring(4).through(channels.quantized(4)))
            outline = replace_deferred(method, lambda number: 1)
            objectives = problem.objectives(outline.batch)
            for message in message_shapes(outline, objectives, *problem.start(0)):
                leaves, shape = jax.tree.flatten(message)
                key = shape, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
                methods_by_message.setdefault(key, []).append(name)
    assert {name for who in methods_by_message.values() for name in who} == set(names)
    return methods_by_message


@pytest.mark.wide(keep=["few"])
@pytest.mark.parametrize("names", [pytest.param(FEW, id="few"), pytest.param(METHODS, id="all")])
def test_every_method_goes_through_every_channel(names):
    """Abstractly: a change is like its message, and what links keep is like it was before."""
    methods_by_message = distinct_messages(names)
    shapes = [
        jax.tree.unflatten(shape, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
        for shape, leaves in methods_by_message
    ]
    stages = jax.tree.map(lambda a: jax.ShapeDtypeStruct((4, *a.shape), a.dtype), shapes)
    assert set(OPTIONS) == set(channels.__all__)
    for name, options in ((name, one) for name, several in OPTIONS.items() for one in several):
        mixer = make_mixer(ring(4).through(getattr(channels, name)(**options)))

        def one_round(stages, mixer=mixer):
            first = state = mixer.start(shapes)
            changes = []
            for number, message in enumerate(stages):
                moment = ExchangeId(key(0), jnp.int32(3), number, number)
                change, state = mixer.exchange(message, moment, state)
                changes.append(change)
            return changes, first, state

        changes, first, state = jax.eval_shape(one_round, stages)
        for change, stage, methods in zip(changes, stages, methods_by_message.values()):
            assert change == stage, (name, options, methods)
        assert state == first, (name, options)


SILENT = {  # with stages that send nothing
    "amigo": [channels.quantized(4)],
    "f2sa": [channels.drops(0.3), channels.top(terms=1, feedback="error"), channels.delay(1)],
    "itd": [channels.noise(sigma=0.01)],
    "ttsa": [channels.drops(0.3, burst=4)],
    "vrbo": [channels.fading()],
}


@pytest.mark.wide
@pytest.mark.parametrize("name", SILENT)
def test_methods_with_stages_that_send_nothing_run_through_channels(name):
    with without_optimizations():  # `end` sees that all is finite
        state = final_progress(
            quad(), ring(4).through(*SILENT[name]), build(name, **STEPS), 3
        ).state
    assert np.ptp(np.asarray(state.x), axis=0).max() > 1e-6  # agents differ, as rows do


@pytest.mark.wide
def test_a_channel_that_loses_nothing_changes_nothing_around_a_stage_that_sends_nothing():
    method = build("f2sa", **STEPS)
    through = lambda net: final_progress(quad(), net, method, 3).state
    plain, whole = through(ring(4)), through(ring(4).through(channels.drops(0.0)))
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    jax.tree.map(close, plain, whole)
