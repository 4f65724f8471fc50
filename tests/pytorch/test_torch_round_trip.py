"""A problem file with a module: runs, resumes, and runs at sites, with the same result."""

import hashlib
import json

import jax
import numpy as np
import pytest
from federations import start_site
from tls_sites import ports
from typer.testing import CliRunner

import diamond
from diamond import cli
from diamond.engine.site_rehearsal import rehearse

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
pytest.importorskip("torchax", reason="torchax is not installed: make test-torch")

# The frozen layer is large enough to be an argument of the programs.
FILE = """
import jax.numpy as jnp
import numpy as np
import torch
import diamond


def draw(seed):
    a = torch.randn(12, 128, generator=torch.Generator().manual_seed(seed))
    return {"a": a, "b": (a[:, 0] > 0).long()}


def make(data: str = ""):
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(128, 128), torch.nn.Tanh(), torch.nn.Linear(128, 2)
    )
    module[0].requires_grad_(False)
    params, apply = diamond.torch.functional(module)
    cross_entropy = diamond.torch.function(torch.nn.functional.cross_entropy)
    upper = lambda x, y, rows: cross_entropy(apply(y, rows["a"]), rows["b"])
    lower = lambda x, y, rows: upper(x, y, rows) + jnp.exp(x[0]) * jnp.mean(y["2.weight"] ** 2)
    rows = [draw(int(np.load(data)))] if data else [draw(seed) for seed in range(2)]
    start = lambda key: (torch.zeros(1), params)
    return diamond.Problem(upper, lower, start, rows, rows, convex=False)
"""
TERMS = """
rounds = 4
every = 2
network = "complete:2"
algorithm = {name = "f2sa", alpha = 0.05, beta = 0.1, batch = 4}
"""
NAMES = ["north", "south"]
NETWORK = diamond.network.complete(2)
ALGORITHM = diamond.f2sa(0.05, 0.1, batch=4)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """The function of the problem file, which is in the present folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    names = {}
    exec(FILE, names)
    return names["make"]


def invoke(*words):
    result = CliRunner().invoke(cli.app, [*map(str, words)])
    assert result.exit_code == 0, result.output
    return result


def test_a_file_runs_and_a_longer_one_continues_from_its_checkpoint(tmp_path, make, float32):
    (tmp_path / "mine.toml").write_text(TERMS + 'problem = {kind = "mine.py:make"}')
    for rounds in (4, 8):
        invoke("run", "mine.toml", "--rounds", rounds)
    run = diamond.load(tmp_path / "runs" / "mine")
    assert run.history["round"].tolist() == [0, 2, 4, 6, 8]
    assert make().captured_bytes == 128 * 128 * 4
    once = diamond.simulate(make(), NETWORK, ALGORITHM, 8, every=2)
    for ours, theirs in zip(
        *map(jax.tree.leaves, ((run.last_x, run.last_y), (once.last_x, once.last_y)))
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_sites_as_processes_end_in_the_bits_of_a_rehearsal(tmp_path, make, float32):
    sites = [f'{name} = "127.0.0.1:{port}"' for name, port in zip(NAMES, ports(2))]
    (tmp_path / "trial.toml").write_text("\n".join([TERMS, "[sites]", *sites]))
    for seed, name in enumerate(NAMES):
        np.save(tmp_path / f"{name}.npy", seed)
    invoke("net", "init", "trial.toml", "--out", tmp_path / "trial")
    processes = [start_site(tmp_path, name) for name in NAMES]
    try:
        problems = [make(f"{name}.npy") for name in NAMES]
        wanted = rehearse(problems, NETWORK, ALGORITHM, 4)
        run = diamond.simulate(make(), NETWORK, ALGORITHM, 4)
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for agent, (name, output, progress) in enumerate(zip(NAMES, outputs, wanted)):
        assert output, (tmp_path / f"{name}.txt").read_text()
        state, result = progress.state, json.loads(output)
        assert result["round"] == 4
        assert result["x"] == hashlib.sha256(np.asarray(state.x).tobytes()).hexdigest()
        np.testing.assert_allclose(state.x, run.last_x[agent], rtol=1e-6)
        for key, a in run.last_y.items():
            np.testing.assert_allclose(state.y[key], a[agent], rtol=1e-6, atol=1e-8)
    assert (run.x != 0).all()
