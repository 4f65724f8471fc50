"""Channels: what each guarantees, and where DIAMOND ends through it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import build, final_progress, quad, ring, same_bits
from hypothesis import given, settings, strategies
from jax.flatten_util import ravel_pytree

import diamond
from diamond import hypergradient as hg
from diamond import network
from diamond.core.sampling import ExchangeId, key
from diamond.engine.many_runs import simulate_many
from diamond.engine.round_program import initial_progress_with_links, run_round
from diamond.interface.round_interface import Message
from diamond.network import channels
from diamond.network.mixing.link_mixer import link_mixer
from diamond.network.mixing.lossy_mixer import LossyMixer, make_mixer
from diamond.network.mixing.mixer import Mixer

STEPS = dict(alpha=0.02, beta=0.2, eta=0.5, gamma=0.5)
# In the limit nothing is lost: DIAMOND ends at the solution, to rounding.
LOSSLESS = {
    "drops": [channels.drops(0.3)],
    "bursts": [channels.drops(0.3, burst=4)],
    "delay": [channels.delay(2)],
    "float16": [channels.rounded("float16")],
    "bfloat16": [channels.rounded("bfloat16")],
    "4 bits": [channels.quantized(4)],
    "2 bits": [channels.quantized(2)],
    "top": [channels.top(terms=1)],
    "random": [channels.random(share=2 / 3)],
    "sign": [channels.sign()],
    "low rank": [channels.low_rank(1)],
    "fading": [channels.fading("rician", knowledge="receiver")],
    "late and few": [channels.quantized(4), channels.delay(1)],
}
MOVING = {  # totals are not kept
    "receiver": [channels.drops(0.3, known="receiver")],
    "blind": [channels.fading(knowledge="none")],
    "noise": [channels.noise(sigma=0.1)],
    "snr": [channels.noise(snr=20)],
    "drifting": [channels.noise(sigma=0.1, accumulate=False)],
    "air": [channels.over_the_air(2.0, 0.1)],
}
OTHERS = {
    "error": [channels.quantized(4, feedback="error")],
    "none": [channels.top(0.5, feedback="none")],
    "inverted": [channels.fading()],
    "all": [channels.drops(0.2), channels.sign(feedback="error"), channels.delay(1)],
}


def diamond_on(net, rounds, seed=0):
    method = build("diamond", hypergradient=hg.exact(), batch=2, **STEPS)
    q = quad(agents=6, rows=4, noise=0.0)
    return q, final_progress(q, net, method, rounds, seed)


FIRST = ["bursts", "4 bits"]  # of the others, the suite sees that they agree


@pytest.mark.wide
@pytest.mark.parametrize(
    "name",
    [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in LOSSLESS],
)
def test_what_loses_nothing_in_the_limit_ends_at_the_solution(name):
    q, progress = diamond_on(ring(6).through(*LOSSLESS[name]), 6000)
    state, expected = progress.state, q.minimizer()
    assert np.abs(np.asarray(state.x) - expected).max() < 1e-9 * np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(state.u - state.p).sum(0), 0, atol=1e-12)


SIZES = (4, 3), (4,)


def agreeing(net, count, seed=0):
    """After `count` exchanges: the message, what it was, and by how much totals moved at most."""
    mixer = make_mixer(net)
    random = np.random.default_rng(seed)
    first = Message(*(jnp.asarray(random.normal(size=(net.agents, *s))) for s in SIZES))

    def one(t, carry):
        state, message, largest = carry
        change, state = mixer.exchange(message, ExchangeId(key(seed), t), state)
        moved = jax.tree.map(lambda a, c: a + c, message, change)
        return state, moved, jnp.maximum(largest, jnp.abs(change.total.sum(0)).max())

    state = mixer.start([Message(*map(jnp.zeros, SIZES))])
    run = jax.jit(lambda *carry: jax.lax.fori_loop(0, count, one, carry))
    _, message, largest = run(state, first, jnp.zeros(()))
    return first, message, float(largest)


@pytest.mark.wide(keep=["fading", "receiver"])
@pytest.mark.parametrize("name", {**LOSSLESS, **MOVING, **OTHERS})
def test_totals_are_kept_where_it_says_so_and_what_loses_nothing_agrees(name):
    used = {**LOSSLESS, **MOVING, **OTHERS}[name]
    first, after, moved = agreeing(ring(5).through(*used), 3000)
    keeps_total = all(one.keeps_total for one in used)
    assert (moved < 1e-12) == keeps_total
    if name in LOSSLESS:
        expected = np.broadcast_to(first.average.mean(0), first.average.shape)
        np.testing.assert_allclose(after.average, expected, atol=1e-9)


@pytest.mark.wide
@settings(deadline=None, max_examples=3)
@given(
    seed=strategies.integers(0, 2**31 - 1),
    loss=strategies.floats(0.05, 0.9),
    burst=strategies.floats(1, 20),
)
def test_totals_are_kept_through_ten_thousand_rounds_of_drops_on_changing_digraphs(
    seed, loss, burst
):
    """One program: seeds, losses and matrices are its arguments."""
    each = [network.random_digraph(5, 0.4, seed=seed % 1000 + k) for k in range(3)]
    burst = max(burst, 1.01 * loss / (1 - loss))
    net = network.changing(each).through(channels.drops(loss, burst))
    _, message, start = _long(make_mixer(net), key(seed))
    np.testing.assert_allclose(message.total["w"].sum(0), 5, rtol=1e-9)
    np.testing.assert_allclose(message.total["u"].sum(0), start, rtol=1e-9, atol=1e-9)
    assert np.ptp(np.asarray(message.average), axis=0).max() < 1e-9  # and all agree
    assert float(message.total["w"].min()) > 0


@jax.jit
def _long(mixer, random):
    """10^4 rounds of trackers u, push-sum weights w and averages."""
    u = jax.random.normal(random, (5, 3))
    first = Message(jax.random.normal(random, (5, 2)), {"u": u, "w": jnp.ones(5)})
    state = mixer.start([jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), first)])

    def body(t, carry):
        state, message = carry
        change, state = mixer.exchange(message, ExchangeId(random, t), state)
        return state, jax.tree.map(lambda a, c: a + c, message, change)

    return *jax.lax.fori_loop(0, 10_000, body, (state, first)), u.sum(0)


@pytest.mark.wide
def test_losses_are_as_frequent_and_as_long_as_asked_and_the_same_at_both_ends():
    mixer = make_mixer(ring(5).through(channels.drops(0.3, burst=5)))

    @jax.jit
    def run(state):
        def next_state(state, t):
            _, state = mixer.channels[0].gates(state, mixer._link_draw(ExchangeId(key(1), t), 0), 5)
            return state, state

        return jax.lax.scan(next_state, state, jnp.arange(20_000))[1]

    is_bad = np.asarray(run(mixer.start([Message(jnp.zeros(1), None)]).links[0])) == 1
    assert np.array_equal(is_bad, is_bad.transpose(0, 2, 1))
    edge = is_bad[:, 0, 1]
    assert edge.mean() == pytest.approx(0.3, abs=0.03)
    begun = np.sum(edge[1:] & ~edge[:-1])
    assert edge.sum() / begun == pytest.approx(5, rel=0.15)


def test_dense_and_sparse_links_are_the_same_through_channels():
    net = network.random_digraph(6, 0.4, seed=3).through(
        channels.drops(0.3), channels.noise(sigma=0.1, accumulate=False)
    )
    random = np.random.default_rng(0)
    message = Message(*(jnp.asarray(random.normal(size=(6, n))) for n in (3, 2)))
    changes = []
    for dense in (True, False):
        mixer = LossyMixer(link_mixer(net, dense), net.channels, 1.0, 6)
        shapes = Message(jnp.zeros(3), jnp.zeros(2))
        inputs = message, mixer.start([shapes])
        change, _ = jax.jit(
            lambda a, state, mixer=mixer: mixer.exchange(a, ExchangeId(key(4), 2), state)
        )(*inputs)
        changes.append(change)
    for a, b in zip(jax.tree.leaves(changes[0]), jax.tree.leaves(changes[1])):
        np.testing.assert_allclose(a, b, atol=1e-13)


@pytest.mark.wide
def test_noise_ends_where_linear_analysis_says():
    """z_{t+1} = A z_t + B n_t, so that E||x - x*||^2 is sum_t ||(A^t B)_x||^2.

    A is the program without noise, which is linear (quadratics, full batches); B puts
    gamma sqrt(sum_j M_ij^2) sigma n into x, and its change from round to round into u.
    """
    sigma, gamma = 1e-3, 0.5
    net = ring(6).through(channels.noise(sigma=sigma), gamma=gamma)
    q = quad(agents=6, rows=4, noise=0.0, lower_level="none")
    method = build("gt_storm", batch=2, alpha=0.05, eta=0.5).specialize(q)
    quiet = ring(6).through(channels.noise(sigma=0.0), gamma=gamma)
    expected = predicted(q, quiet, method, sigma, gamma)
    assert wandering(q, net, method, 8000) == pytest.approx(expected, rel=0.2)


def _start_and_step(q, net, method):
    """Where a run begins, and what a round makes of it."""
    fixed = jax.tree.map(jnp.asarray, method), q.objectives(2), make_mixer(net)
    return initial_progress_with_links(*fixed, *q.start(0)), partial(
        run_round, *fixed, key(7), "blocks"
    )


def wandering(q, net, method, count):
    """The mean of ||x_i - x*||^2 over agents and the last rounds."""
    (first, step), wanted = _start_and_step(q, net, method), q.minimizer()

    def one(progress, _):
        progress = step(progress)
        return progress, jnp.mean(jnp.sum((progress.state.x - wanted) ** 2, -1))

    far = jax.jit(lambda p: jax.lax.scan(one, p, None, count)[1])(first)
    return float(far[1000:].mean())


def predicted(q, quiet, method, sigma, gamma):
    rest, step = _start_and_step(q, quiet, method)
    state = rest.state, rest.link_states
    flat, back = ravel_pytree(state)

    def advance(flat):
        state, link_states = back(flat)
        after = step(rest._replace(state=state, link_states=link_states))
        return ravel_pytree((after.state, after.link_states))[0]

    images = jax.jit(jax.vmap(advance))(jnp.vstack([flat + jnp.eye(flat.size), flat]))
    a = np.asarray(images[:-1] - images[-1]).T  # the program is linear
    weights = quiet.matrix - np.diag(np.diag(quiet.matrix))
    level = sigma * np.sqrt((weights**2).sum(1))[:, None] * np.ones((6, 3))
    blank = jax.tree.map(jnp.zeros_like, state)
    columns = []
    for i in range(6):
        for j in range(3):
            unit = jnp.zeros((6, 3)).at[i, j].set(level[i, j])
            into_x = blank[0]._replace(x=gamma * unit), blank[1]
            # u gets the noise and remembers it, to take it away in the next round.
            memory = blank[0].memory._replace(x=gamma * unit)
            heard = jax.tree.map(lambda z, unit=unit: unit, blank[1].heard)
            into_u = blank[0]._replace(memory=memory), blank[1]._replace(heard=heard)
            columns += [ravel_pytree(into_x)[0], ravel_pytree(into_u)[0]]
    b = np.asarray(jnp.stack(columns, 1))
    # What the noise excites and x shows: the rest (sums since the start) wanders and is not seen.
    seen = np.asarray(ravel_pytree((blank[0]._replace(x=jnp.ones((6, 3))), blank[1]))[0]) > 0
    total, power = 0.0, b
    for _ in range(3000):
        total += (power[seen] ** 2).sum()
        power = a @ power
    return total / 6


ALONE = build("dsgd", alpha=0.1, beta=0.1, hypergradient=hg.exact(), batch=2)
BAD = {
    "all lost": (lambda: channels.drops(1.0), "loss = 1.0: a share from 0 to below 1"),
    "short": (lambda: channels.drops(0.5, burst=0.5), "at a loss of 0.5 bursts last 1 or more"),
    "known": (lambda: channels.drops(0.1, known="me"), "known = 'me'; there are"),
    "bits": (lambda: channels.quantized(1), "bits = 1: 2 to 8 a number; for one, take sign"),
    "share": (lambda: channels.top(1.5), "share = 1.5"),
    "neither": (lambda: channels.random(), "give either share"),
    "noise": (lambda: channels.noise(), "give either snr"),
    "sigma": (lambda: channels.noise(sigma=-1.0), "sigma = -1.0"),
    "power": (lambda: channels.over_the_air(0.0), "power = 0.0"),
    "kind": (lambda: channels.rounded("float8"), "kind = 'float8'; there are"),
    "fading": (lambda: channels.fading(threshold=0.0), "threshold = 0.0 above 0"),
    "feedback": (lambda: channels.sign(feedback="yes"), "feedback = 'yes'; there are"),
    "gamma": (lambda: ring(3).through(gamma=2.0), "gamma = 2.0"),
    "type": (lambda: ring(3).through("drops"), "'drops' is no channel"),
    "in a list": (lambda: ring(3).through([channels.delay(1), 0.1]), "0.1 is no channel"),
    "again": (lambda: ring(3).through(channels.sign()).through(channels.delay(1)), "already"),
    "terms": (
        lambda: diamond.simulate(
            quad(), ring(4).through(channels.top(terms=50)), ALONE, 1
        ),
        "terms = 50, but a message has 3 numbers; take 3 or fewer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_said_in_one_sentence(name):
    make, message = BAD[name]
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_perfect_links_are_the_program_that_was_there():
    assert type(make_mixer(ring(4))) is type(make_mixer(ring(4).through())) is Mixer
    assert ring(4).through().damping == 1.0


def test_channels_are_given_one_by_one_or_as_a_list():
    two = channels.drops(0.1), channels.delay(1)
    one_by_one = ring(4).through(*two)
    assert ring(4).through(list(two)).name == ring(4).through(two).name == one_by_one.name
    assert ring(4).through(list(two)).channels == one_by_one.channels == two
    assert ring(4).through([]).channels == ()


@pytest.mark.wide
def test_a_run_goes_on_bit_for_bit_and_counts_what_travels():
    """Copies of difference coding are part of where a run stands; so are lanes of many runs."""
    net = ring(4).through(channels.top(terms=1), channels.delay(1))
    algorithm = build("diamond", batch=2, **STEPS)
    saved = []
    fixed = quad(lower_level="none"), net, algorithm, 12
    whole = diamond.simulate(*fixed, every=6, on_progress=saved.append)
    assert ".kept.told[0][0].average['x']" in saved[0].arrays
    half = next(s for s in saved if int(s.arrays[".t"]) == 6)
    half = half._replace(entries=half.entries[:2], per_agent=half.per_agent[:2])
    again = diamond.simulate(*fixed, every=6, resume=half)
    assert same_bits(whole.state, again.state)
    # Of x and of u: one number of 8 bytes and its place of 2, to 2 neighbours of 4 agents.
    assert whole.history["bytes"][-1] == 12 * 4 * 2 * 2 * (8 + 2)
    (lane,) = simulate_many(*fixed[:2], [(algorithm, 0)], 12, every=6, batched=True)
    np.testing.assert_allclose(lane.history["metric"], whole.history["metric"], rtol=1e-9)
    np.testing.assert_array_equal(lane.history["bytes"], whole.history["bytes"])


CODECS = {  # and bytes of a 6 x 5 matrix of float64
    "float16": (channels.rounded("float16"), 60 + 8),
    "bfloat16": (channels.rounded("bfloat16"), 60),
    "2 bits": (channels.quantized(2), 8 + 8),
    "3 bits": (channels.quantized(3), 12 + 8),
    "8 bits": (channels.quantized(8), 30 + 8),
    "top": (channels.top(0.2), 6 * (8 + 2)),
    "random": (channels.random(terms=7), 7 * 8),
    "sign": (channels.sign(), 4 + 8),
    "low rank": (channels.low_rank(2), (6 + 5) * 2 * 8),
    "no lower rank": (channels.low_rank(5), 30 * 8),
}


@pytest.mark.wide(keep=["sign"])
@pytest.mark.parametrize("name", CODECS)
def test_a_codec_comes_closer_in_the_bytes_it_says_and_squeezing_loses_nothing(name):
    channel, size = CODECS[name]
    a = jnp.asarray(np.random.default_rng(1).normal(size=(6, 5)))
    for scale in (1.0, 1e-12, 0.0):
        codec, wire = channel.codec, channel.codec.pack(key(3), scale * a)
        squeezed = codec.squeeze(wire)
        assert sum(leaf.nbytes for leaf in jax.tree.leaves(squeezed)) == size
        assert same_bits(codec.expand(squeezed, a), wire)
        off = jnp.linalg.norm(scale * a - codec.unpack(key(3), wire, a))
        assert off < 0.99 * scale * jnp.linalg.norm(a) or scale == off == 0
    wire = jax.tree.leaves(channel.wire(jax.ShapeDtypeStruct(a.shape, a.dtype)))
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in wire) == size


@pytest.mark.quick
def test_error_feedback_delivers_every_entry_in_the_mean_over_rounds():
    """sum_t shat_t = T s - e_T: off by what is still owed, e, which stays bounded."""
    channel, message = channels.top(0.5, feedback="error"), jnp.array([4.0, 2.0, 1.0, 0.25])
    rounds = 2000

    def send(state, t):
        received, state = channel.outgoing(state, message, key(0))
        return state, received

    owed, received = jax.lax.scan(send, channel.start_sender(message), jnp.arange(rounds))
    assert np.all(np.sum(np.asarray(received) != 0, axis=1) == 2)  # half of the entries at a time
    np.testing.assert_allclose(received.mean(0), message, atol=2 * 4.0 / rounds)
    np.testing.assert_allclose(received.sum(0) + owed, rounds * message, rtol=1e-12)


@pytest.mark.wide
def test_unfitted_levels_are_right_in_the_mean_and_gamma_may_decrease():
    codec = channels.quantized(2, feedback="none").codec
    a = jnp.asarray(np.random.default_rng(1).normal(size=9))
    keys = jax.random.split(key(0), 4000)
    decoded = jax.vmap(lambda k: codec.unpack(k, codec.pack(k, a), a))(keys)
    np.testing.assert_allclose(decoded.mean(0), a, atol=5 * float(jnp.abs(a).max()) / 4000**0.5)
    net = ring(5).through(channels.noise(sigma=0.1), gamma=diamond.schedules.power(1.0, 1.0, 1.0))
    mixer, message = make_mixer(net), Message(jnp.eye(5), jnp.eye(5))
    state = mixer.start([Message(jnp.zeros(5), jnp.zeros(5))])
    first, later = (mixer.exchange(message, ExchangeId(key(0), t), state)[0] for t in (0, 99))
    assert np.abs(later.average).max() < 0.05 * np.abs(first.average).max()
