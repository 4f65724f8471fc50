"""What cooperating is worth: scores of means, whose minimizers are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import without_optimizations

import diamond
from diamond.network import complete, ring
from diamond.records.cooperation import Cooperation

CENTRES = (0.0, 1.0, 5.0)


def draw(counts, seed):
    random = np.random.default_rng(seed)
    return [c + random.normal(size=(n, 2)) for c, n in zip(CENTRES, counts)]


def mean_problem(**options):
    """x is near the rows: its minimizer is the mean of the agents' means."""
    loss = lambda x, rows: jnp.mean(jnp.sum((rows - x) ** 2, 1))
    parts = draw((20, 12, 8), 0), None, draw((9, 30, 7), 1)
    names = ["north", "south", "west"]
    return diamond.Problem(
        loss, None, lambda key: jnp.full(2, 9.0), *parts,
        metrics={"distance": loss}, agent_names=names, **options,
    )  # fmt: skip


def test_scores_are_those_of_the_known_minimizers(tmp_path):
    with without_optimizations():
        run = diamond.solve(mean_problem(), ring(3), accuracy="exact", measure="loss")
        compared = diamond.compare_alone(run)
    train, test = draw((20, 12, 8), 0), draw((9, 30, 7), 1)
    means = [rows.mean(0) for rows in train]
    distances = lambda rows, x: np.sum((rows - x) ** 2, 1)
    by_row = [
        [distances(rows, x) for x in (np.mean(means, 0), own, np.concatenate(train).mean(0))]
        for rows, own in zip(test, means)
    ]
    found = compared.cooperation
    assert (found.measure, found.rows, found.larger_is_better) == ("distance", "test", False)
    scores = np.array([found.together, found.alone, found.pooled]).T
    np.testing.assert_allclose(scores, [[d.mean() for d in of] for of in by_row], rtol=1e-2)
    differences = [together - alone for together, alone, _ in by_row]
    np.testing.assert_allclose(found.gains, [-d.mean() for d in differences], rtol=2e-2)
    errors = [d.std(ddof=1) / np.sqrt(len(d)) for d in differences]
    np.testing.assert_allclose(found.errors, errors, rtol=2e-2)
    text = repr(compared.summary())
    assert "Mean distance on test rows, smaller is better:" in text
    assert "Compared with learning alone: north loses" in text and "distance on test rows" in text
    assert diamond.load(compared.save(tmp_path / "run")).cooperation == found
    assert run.cooperation is None and compared.x is run.x


@pytest.mark.quick
def test_sentences_name_clear_differences_only():
    make = lambda n, **more: Cooperation(
        "accuracy", "test", [f"s{i}" for i in range(n)], [0.9] * n, [0.8] * n, [0.95] * n,
        **{"errors": [0.01] * n, "larger_is_better": True} | more,
    )  # fmt: skip
    assert make(2).sentences == [
        "Mean accuracy on test rows, larger is better: 0.9 together, 0.8 alone, 0.95 from pooled "
        "rows.",
        "Compared with learning alone: s0 gains 0.1, s1 gains 0.1.",
    ]
    assert (
        make(2, errors=[0.01, 0.1])
        .sentences[1]
        .endswith("s0 gains 0.1, no difference beyond two standard errors for s1.")
    )
    assert make(1, larger_is_better=False).sentences[1].endswith("s0 loses 0.1.")
    assert make(9).sentences[1].endswith("9 of 9 agents gain, 0 lose.")
    nothing = make(3, errors=[1.0, float("nan"), 1.0]).sentences[1]
    assert nothing.endswith("no agent differs by more than two standard errors.")
    assert make(1).cells()[1] == ["s0", "0.9", "0.8", "0.95", "0.1 ± 0.01"]


def test_runs_that_cannot_be_compared():
    one = diamond.Problem(
        lambda x, rows: jnp.mean((rows - x) ** 2), None, lambda key: jnp.ones(1), [np.ones((4, 1))]
    )
    run = diamond.solve(one, complete(1), rounds=1, measure="loss")
    with pytest.raises(ValueError, match="cannot be compared: the run has one agent; give a run"):
        diamond.compare_alone(run)
    run = diamond.solve(mean_problem(), ring(3), rounds=1, measure="loss")
    with pytest.raises(ValueError, match=r"measure = 'distanc' is no metric; did you mean dist"):
        diamond.compare_alone(run, "distanc")
