"""Every message in docs/reference/errors.md is the actual message, provoked here."""

import hashlib
import re
import warnings

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from fast_compilation import without_optimizations
from pages import ENV, ROOT, quotes
from tiny_experiment import TINY, tiny
from typer.testing import CliRunner

import diamond
from diamond import cli
from diamond.config.experiment_file import validate
from diamond.gallery import meta_learning, quadratic
from diamond.hardware import compilation_cache
from diamond.records.folder_writer import Writer
from diamond.records.manifest import package_versions

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text()
ENTRIES = re.findall(r"^## (.*?)\n\n```text\n(.*?)^```", PAGE, re.M | re.S)
ROWS = {"a": np.arange(24.0).reshape(12, 2) / 24, "b": np.ones(12)}


def square(x, y, rows):
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + 0.0 * jnp.sum(x) * jnp.sum(y)


def problem(upper=square, lower=square, agents=1, **parts):
    given = {"train": [ROWS] * agents, "valid": [ROWS] * agents} | parts
    return diamond.Problem(upper, lower, lambda key: (jnp.zeros(2), jnp.zeros(2)), **given)


def rows(a):
    return {"a": np.array(a, float).reshape(-1, 2), "b": np.ones(len(a))}


def run(algorithm, rounds=300, agents=2):
    made = quadratic(agents=agents, upper=2, lower=2, rows=6)
    return diamond.simulate(made, diamond.network.path(agents), algorithm, rounds, every=rounds)


def steps(**given):
    plain = {"alpha": 0.01, "beta": 0.1, "batch": 2}
    return diamond.dsgd(**plain | {"hypergradient": diamond.hypergradient.neumann(3, 9.0)} | given)


def leaking():
    matrix = np.array([[0.4, 0.5], [0.5, 0.5]])
    return diamond.network.from_graph(nx.path_graph(2), mixing=matrix)


def flat():
    """A lower level with no minimum."""
    slope = lambda x, y, rows: jnp.mean(rows["b"]) * jnp.sum(y * (1 + 0 * x))
    diamond.simulate(problem(lower=slope), diamond.network.complete(1), steps(alpha=0.0), 0)


def too_large_alpha():
    run(steps(alpha=1e6))


def growing():
    """beta beyond 2 / L_g by a little: y leaves slowly."""
    made = quadratic(agents=2, upper=2, lower=2, rows=6)
    chain = diamond.hypergradient.neumann(3, 9.0)
    algorithm = diamond.diamond(0.01, 1.45, 0.5, 0.5, 2, chain)
    diamond.simulate(made, diamond.network.path(2), algorithm, 120, every=20)


def stale():
    """One coefficient fitted to rows that differ; eta forgets nothing, and y is y* throughout."""
    random = np.random.default_rng(0)
    site = lambda: {"a": random.uniform(0.2, 2, 12), "b": random.normal(size=12) + 1}
    none = lambda x, y: 0.0 * x[0] * y[0]
    fit = lambda x, y, rows: jnp.mean((rows["a"] * x[0] - rows["b"]) ** 2) + none(x, y)
    fixed = lambda x, y, rows: jnp.mean(rows["a"] ** 0) * jnp.sum((y - 1) ** 2) + none(x, y)
    start = lambda key: (jnp.zeros(1), jnp.ones(1))
    made = diamond.Problem(fit, fixed, start, [site()], [site()])
    chain = diamond.hypergradient.neumann(3, 9.0)
    algorithm = diamond.diamond(0.05, 0.1, 1e-6, 0.5, 1, chain)
    diamond.simulate(made, diamond.network.complete(1), algorithm, 20, every=1)


def collapsed():
    """A hidden unit, and steps of 100: it is saturated at once, on the same side for all rows."""

    def site(seed):
        b = np.repeat(np.arange(2), 12).astype(np.int32)
        noise = np.random.default_rng(seed).normal(size=(24, 4))
        return {"a": 1 + 0.1 * noise + 0.3 * b[:, None], "b": b}

    made = meta_learning([site(0), site(1)], [site(5), site(6)], classes=2, widths=(1,))
    algorithm = diamond.gt_sgd(100.0, 0.2, 4, diamond.hypergradient.neumann(3, 9.0))
    diamond.simulate(made, diamond.network.path(2), algorithm, 50, every=50)


def short_chain():
    made = diamond.hypergradient.neumann(3, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(steps(alpha=0.5, hypergradient=made), 3000)


def command(*words):
    """What a command says when it fails."""
    found = CliRunner().invoke(cli.app, words, env=ENV)
    assert found.exit_code in (1, 2), found.output
    raise ValueError(found.stderr)


def interrupted(here, experiment, **manifest):
    """The folder of a run that was begun."""
    path = here / "runs" / experiment.name
    with Writer(path) as writer:
        (path / "config.toml").write_text(experiment.to_toml(path))
        rest = dict.fromkeys(("resolved", "algorithm", "network", "seed"), 0)
        writer.update_manifest(
            status="interrupted", versions=package_versions(), **rest, **manifest
        )
    return path


def changed(here):
    source = (
        "from diamond.gallery import quadratic\n\n\ndef make():\n    return quadratic(3, 2, 2)\n"
    )
    (here / "mine.py").write_text(source)
    before = hashlib.sha256(b"# as it was\n" + source.encode()).hexdigest()
    experiment = validate(TINY | {"name": "own", "problem": "mine.py:make"}, here, "own.toml")
    interrupted(here, experiment, problem={"sources": {"../../mine.py": before}})
    command("resume", "runs/own")


def unreadable(here):
    path = interrupted(here, tiny(name="small"), problem={"sources": {}})
    (path / "checkpoint").mkdir()
    (path / "checkpoint" / "0000000012.json").write_text("{")
    command("resume", "runs/small")


def unmeasurable():
    ratio = lambda x, y, rows: jnp.where(jnp.sum(y**2) > 0.5, jnp.nan, 1.0) + 0 * rows["b"][0]
    far = lambda x, y, rows: square(x, y - 9, rows)
    made = problem(lower=far, metrics={"ratio": ratio})
    diamond.simulate(made, diamond.network.complete(1), steps(), 1)


PROVOKED = {
    "A loss that is a sum": lambda: problem(
        lambda x, y, rows: 8 * square(x, y, rows) * len(rows["b"]) / 8
    ),
    "A loss that is not a scalar": lambda: problem(lower=lambda x, y, rows: rows["a"] @ y),
    "A loss that is not finite": lambda: problem(
        lambda x, y, rows: jnp.log(-1 - square(x, y, rows))
    ),
    "A lower level without y": lambda: problem(lower=lambda x, y, rows: jnp.mean(rows["a"] @ x)),
    "Levels that do not depend on each other": lambda: problem(
        lower=lambda x, y, rows: jnp.mean((rows["a"] @ y) ** 2)
    ),
    "More memory than there is": lambda: diamond.simulate(
        problem(agents=2), diamond.network.path(2), steps(), 1, memory=900
    ),
    "A mixing matrix that does not average": leaking,
    "Diverged: beta": lambda: run(steps(beta=5)),
    "Diverged: lipschitz": short_chain,
    "Diverged: alpha": too_large_alpha,
    "Eigenvalues above lipschitz": lambda: run(
        steps(hypergradient=diamond.hypergradient.neumann(3, 0.5)), 1
    ),
    "No y* to be found": flat,
    "A direction that grows": growing,
    "Momentum that gathers correction": stale,
    "x stands still": lambda: run(steps(alpha=1e-9), 100),
    "Features that have collapsed": collapsed,
    "The problem has changed": changed,
    "No checkpoint left": unreadable,
    "Measures that are not finite": unmeasurable,
}


def test_every_message_has_its_provocation():
    assert [heading for heading, _ in ENTRIES] == list(PROVOKED)
    headings = re.findall(r"^## (.*)$", PAGE, re.M)
    assert headings == list(PROVOKED)


@pytest.mark.wide
@pytest.mark.parametrize("heading, message", ENTRIES, ids=[heading for heading, _ in ENTRIES])
def test_the_message_is_what_is_said(heading, message, tmp_path, monkeypatch, float32):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    provoke = PROVOKED[heading]
    given = (tmp_path,) if provoke.__code__.co_argcount else ()
    with without_optimizations(), pytest.raises((Exception, Warning)) as found:
        provoke(*given)
    assert quotes(message, str(found.value)), str(found.value)
