"""Every message in docs/faq.md is what is really said, provoked here under its heading."""

import hashlib
import re
import warnings

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from compiling import quickly
from pages import ENV, ROOT, quotes
from tiny import TINY, TOML, tiny
from typer.testing import CliRunner

import diamond
from diamond import cache, cli
from diamond.experiment.config import read
from diamond.folder import Writer, versions
from diamond.problems import quadratic

ENTRIES = re.findall(
    r"^## (.*?)\n\n```text\n(.*?)^```", (ROOT / "docs/faq.md").read_text(), re.M | re.S
)
ROWS = {"a": np.arange(24.0).reshape(12, 2) / 24, "b": np.ones(12)}


def square(x, y, rows):
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2)


def problem(upper=square, lower=square, agents=1, **parts):
    given = {"train": [ROWS] * agents, "valid": [ROWS] * agents} | parts
    return diamond.Problem(upper, lower, lambda key: (jnp.zeros(2), jnp.zeros(2)), **given)


def rows(a):
    return {"a": np.array(a, float).reshape(-1, 2), "b": np.ones(len(a))}


def run(algorithm, rounds=300, agents=2):
    made = quadratic(agents=agents, upper=2, lower=2, rows=6).problem
    return diamond.simulate(made, diamond.network.path(agents), algorithm, rounds, every=rounds)


def steps(**given):
    plain = {"alpha": 0.01, "beta": 0.1, "batch": 2}
    return diamond.dsgd(**plain | {"hypergradient": diamond.hypergradient.neumann(3, 9.0)} | given)


def leaking():
    matrix = np.array([[0.4, 0.5], [0.5, 0.5]])
    return diamond.network.from_graph(nx.path_graph(2), mixing=matrix)


def flat():
    """A lower level with no minimum."""
    slope = lambda x, y, rows: jnp.mean(rows["b"]) * jnp.sum(jnp.exp(-y))
    diamond.simulate(problem(lower=slope), diamond.network.complete(1), steps(alpha=0.0), 0)


def too_large_alpha():
    run(steps(alpha=1e6))


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


def wrong_keys(here):
    text = TOML.replace("ring:3", "rign:3").replace("batch", "alhpa = 1\nbatch")
    (here / "small.toml").write_text(text)
    command("run", "small.toml")


def two_seeds(here):
    (here / "small.toml").write_text(TOML)
    command("run", "small.toml", "--set", "seed=[0, 1]")


def interrupted(here, experiment, **manifest):
    """The folder of a run that was begun."""
    path = here / "runs" / experiment.name
    with Writer(path) as writer:
        (path / "config.toml").write_text(experiment.toml(path))
        writer.manifest(status="interrupted", versions=versions(), **manifest)
    return path


def busy(here):
    path = interrupted(here, tiny(name="small"), problem={"sources": {}})
    with Writer(path):
        command("resume", "runs/small")


def changed(here):
    source = (
        "from diamond.problems import quadratic\n\n\ndef make():\n    return quadratic(3, 2, 2)\n"
    )
    (here / "mine.py").write_text(source)
    before = hashlib.sha256(b"# as it was\n" + source.encode()).hexdigest()
    experiment = read(TINY | {"name": "own", "problem": "mine.py:make"}, here, "own.toml")
    interrupted(here, experiment, problem={"sources": {"../../mine.py": before}})
    command("resume", "runs/own")


PROVOKED = {
    "A loss that is a sum": lambda: problem(
        lambda x, y, rows: 8 * square(x, y, rows) * len(rows["b"]) / 8
    ),
    "A loss that is not a scalar": lambda: problem(lower=lambda x, y, rows: rows["a"] @ y),
    "A loss that is not finite": lambda: problem(
        lambda x, y, rows: jnp.log(-1 - square(x, y, rows))
    ),
    "A lower level without y": lambda: problem(lower=lambda x, y, rows: jnp.mean(rows["a"] @ x)),
    "An agent without rows": lambda: problem(train=[ROWS, rows([])], valid=[ROWS] * 2),
    "Rows that are not finite": lambda: problem(train=[rows([[0, 1], [1, 2], [np.nan, 3]])]),
    "Problem and network differ": lambda: diamond.simulate(
        problem(agents=3), diamond.network.ring(5), steps(), 1
    ),
    "A graph in pieces": lambda: diamond.network.from_graph(nx.Graph([(0, 1), (2, 3)])),
    "A mixing matrix that does not average": leaking,
    "Diverged: beta": lambda: run(steps(beta=5)),
    "Diverged: lipschitz": short_chain,
    "Diverged: alpha": too_large_alpha,
    "Eigenvalues above lipschitz": lambda: run(
        steps(hypergradient=diamond.hypergradient.neumann(3, 0.5)), 1
    ),
    "y* known too roughly": flat,
    "A mistake in a file": wrong_keys,
    "Several where one is wanted": two_seeds,
    "Another process": busy,
    "The problem has changed": changed,
    "No run there": lambda: command("show", "runs/none"),
}


def test_every_message_has_its_provocation():
    assert [heading for heading, _ in ENTRIES] == list(PROVOKED)
    headings = re.findall(r"^## (.*)$", (ROOT / "docs/faq.md").read_text(), re.M)
    assert headings == list(PROVOKED)


@pytest.mark.parametrize("heading, message", ENTRIES, ids=[heading for heading, _ in ENTRIES])
def test_the_message_is_what_is_said(heading, message, tmp_path, monkeypatch, float32):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache, "compile_cache", lambda: None)
    provoke = PROVOKED[heading]
    given = (tmp_path,) if provoke.__code__.co_argcount else ()
    with quickly(), pytest.raises((Exception, Warning)) as found:
        provoke(*given)
    assert quotes(message, str(found.value)), str(found.value)
