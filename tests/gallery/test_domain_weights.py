"""Domain weights: the transformer against one written out in numpy, its text, and a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from helpers import ring
from typer.testing import CliRunner

import diamond
from diamond import cli
from diamond.gallery import _transformer, domain_weights

TINY = {"width": 16, "layers": 1, "heads": 2, "length": 12, "vocabulary": 8}


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def normalized(states, scale):
    return states / np.sqrt((states**2).mean(-1, keepdims=True) + 1e-6) * scale


def written_out(y, tokens, heads):
    """-log p of every next token of one row, position by position and head by head."""
    states = [y["embedding"][token] + y["positions"][t] for t, token in enumerate(tokens[:-1])]
    blocks = y["blocks"]
    for layer in range(len(blocks["up"])):
        w = {name: leaf[layer] for name, leaf in blocks.items()}
        parts = [np.split(normalized(s, w["attention_scale"]) @ w["attention"], 3) for s in states]
        q, k, v = (np.array(part).reshape(len(states), heads, -1) for part in zip(*parts))
        following = []
        for t, state in enumerate(states):
            mixed = []
            for head in range(heads):
                scores = k[: t + 1, head] @ q[t, head] / np.sqrt(q.shape[-1])
                mixed.append(softmax(scores) @ v[: t + 1, head])
            state = state + np.concatenate(mixed) @ w["projection"]
            hidden = np.asarray(jax.nn.gelu(normalized(state, w["up_scale"]) @ w["up"]))
            following.append(state + hidden @ w["down"])
        states = following
    shares = [softmax(normalized(s, y["scale"]) @ y["output"]) for s in states]
    return [-np.log(share[token]) for share, token in zip(shares, tokens[1:])]


@pytest.mark.quick
@pytest.mark.parametrize("remat", [False, True])
def test_the_transformer_is_the_one_written_out(remat):
    y = _transformer.initialize(jax.random.key(0), vocabulary=7, length=5, width=6, layers=2)
    y = jax.tree.map(lambda leaf: 20 * leaf + 0.1, y)  # far from all probabilities equal
    tokens = np.random.default_rng(0).integers(0, 7, (3, 6))
    losses = _transformer.token_losses(y, jnp.asarray(tokens), heads=2, remat=remat)
    y = jax.tree.map(np.asarray, y)
    np.testing.assert_allclose(losses, [written_out(y, row, 2) for row in tokens], rtol=2e-4)


@pytest.mark.quick
def test_clean_text_follows_its_chain_and_noise_does_not(monkeypatch):
    skip_loss_checks(monkeypatch)
    problem = domain_weights(agents=2, rows=2000, **TINY | {"length": 40})
    rows = problem.rows["train"][0]
    for source, is_clean in enumerate(problem.clean):
        text = rows["tokens"][rows["k"] == source]
        counts = np.zeros((8, 8))
        np.add.at(counts, (text[:, :-1], text[:, 1:]), 1)
        law = counts / counts.sum(1, keepdims=True)
        rate = -np.sum(counts * np.log(np.maximum(law, 1e-12))) / counts.sum()
        assert (rate < 0.9 * np.log(8)) == is_clean
        assert is_clean or rate > 0.99 * np.log(8)
    assert set(np.unique(problem.rows["valid"][0]["k"])) == {0, 1, 2}
    # The entropy is what counted transitions of each clean source give, on other rows.
    clean = [rows["tokens"][rows["k"] == k] for k in range(3)]
    losses = []
    for k, text in enumerate(clean):
        counts = np.full((8, 8), 1e-3)
        np.add.at(counts, (text[:, :-1], text[:, 1:]), 1)
        law = counts / counts.sum(1, keepdims=True)
        valid = problem.rows["valid"][1]
        held = valid["tokens"][valid["k"] == k]
        losses.append(-np.log(law[held[:, :-1], held[:, 1:]]).ravel())
    np.testing.assert_allclose(np.concatenate(losses).mean(), problem.entropy, rtol=0.02)


@pytest.mark.parametrize(
    ("rounds", "weight"), [(80, 0.6), pytest.param(120, 0.7, marks=pytest.mark.wide)]
)
def test_a_run_without_numbers_tells_clean_sources_from_noise(rounds, weight, monkeypatch):
    skip_loss_checks(monkeypatch)
    problem = domain_weights(agents=2, rows=128, **TINY)
    assert problem.lower_size < 20_000 and not problem.has_lower_solution
    run = diamond.solve(problem, ring(2), rounds=rounds, batch=16, every=40, progress=False)
    assert problem.auc(run.last_x) == run.history["auc"][-1] == 1.0
    assert run.history["clean_weight"][-1] > weight
    np.testing.assert_allclose(
        problem.weights(run.last_x)[problem.clean].sum(), run.history["clean_weight"][-1], atol=0.01
    )
    assert run.history["upper_loss"][-1] < run.history["upper_loss"][0] - 0.1


@pytest.mark.quick
def test_rows_of_own_texts(tmp_path, monkeypatch):
    skip_loss_checks(monkeypatch)
    paths = [tmp_path / name for name in ("letters.txt", "digits.txt", "target.txt")]
    for path, text in zip(paths, ("abcd" * 100, "0123" * 100, "dcba" * 100)):
        path.write_text(text)
    *texts, target = map(str, paths)
    sizes = TINY | {"vocabulary": 128}
    problem = domain_weights(agents=2, rows=10, texts=texts, clean_text=target, **sizes)
    assert problem.names == ("letters", "digits")
    for rows in problem.rows["train"]:
        for tokens, k in zip(rows["tokens"], rows["k"]):
            assert bytes(tokens.tolist()) in (b"0123" if k else b"abcd") * 10
    assert bytes(problem.rows["valid"][0]["tokens"][0].tolist()) in b"dcba" * 10
    with pytest.raises(ValueError, match=r"letters.txt has 400 bytes; these sizes need"):
        domain_weights(agents=20, rows=10, texts=texts, clean_text=target, **sizes)


@pytest.mark.quick
def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="noise = 6 of 6 sources; leave at least one"):
        domain_weights(noise=6)
    with pytest.raises(ValueError, match="width = 10 with 4 heads; give a multiple"):
        domain_weights(width=10)
    with pytest.raises(ValueError, match="texts without clean_text"):
        domain_weights(texts=["a.txt"])


@pytest.mark.slow
def test_a_file_gives_the_bits_of_the_call(tmp_path, monkeypatch):
    skip_loss_checks(monkeypatch)
    sizes = TINY | {"agents": 2, "rows": 32}
    lines = [f"{name} = {value}" for name, value in sizes.items()]
    head = 'rounds = 30\nevery = 15\n[problem]\nkind = "domain_weights"'
    tail = '[network]\ngraph = "ring"\nagents = 2\n[algorithm]\nname = "solve"\nbatch = 8'
    (tmp_path / "sources.toml").write_text("\n".join([head, *lines, tail]))
    environment = {"NO_COLOR": "1", "TERM": "dumb"}
    words = ["run", str(tmp_path / "sources.toml"), "--out", str(tmp_path), "--quiet"]
    outcome = CliRunner().invoke(cli.app, words, env=environment)
    assert outcome.exit_code == 0, outcome.output
    loaded = diamond.load(tmp_path / "sources")
    with jax.enable_x64(False):
        run = diamond.solve(domain_weights(**sizes), ring(2), rounds=30, batch=8, every=15)
    np.testing.assert_array_equal(loaded.x, run.x)
    np.testing.assert_array_equal(loaded.history["auc"], run.history["auc"])
    assert "value_gap" in loaded.history and "stationarity" not in loaded.history
