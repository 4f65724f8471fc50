"""Modules, data sets and runs: what is refused, what is drawn, and the way back to torch."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diamond
from diamond.hardware.compiler import compile_program
from diamond.torch import torch_versions

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
pytest.importorskip("torchax", reason="torchax is not installed: make test-torch")

nn = torch.nn
RING = diamond.network.ring(3)


def small_module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()


class Numbers(torch.utils.data.Dataset):
    """Items whose value says where they come from, with a random shift if asked for."""

    def __init__(self, agent, count=12, is_random=False):
        self.agent, self.count, self.is_random = agent, count, is_random

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        shift = torch.rand(()) if self.is_random else torch.zeros(())
        features = torch.full((4,), float(100 * self.agent + index)) / 100 + shift
        return {"a": features.double(), "b": index % 2}


def make(train=None, valid=None):
    """A problem whose lower level is a module, with a shared penalty."""
    params, apply = diamond.torch.functional(small_module())
    cross_entropy = diamond.torch.function(nn.functional.cross_entropy)
    upper = lambda x, y, rows: cross_entropy(apply(y, rows["a"]), rows["b"])
    lower = lambda x, y, rows: (
        upper(x, y, rows) + jnp.exp(x) * sum(jnp.mean(a**2) for a in jax.tree.leaves(y))
    )
    rows = [diamond.torch.rows(Numbers(agent)) for agent in range(3)]
    start = lambda key: (jnp.zeros(()), params)
    return diamond.Problem(upper, lower, start, train or rows, valid or rows)


def simulate(problem, rounds=4, **options):
    algorithm = diamond.f2sa(0.05, 0.1, batch=4)
    return diamond.simulate(problem, RING, algorithm, rounds, measure="cheap", **options)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "BatchNorm1d '1' is in training mode"),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2)), "with dropout 0.2.*call module.eval()"),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.3), "LSTM is in training mode with dropout 0.3"),
        (nn.MultiheadAttention(4, 2, dropout=0.1), "MultiheadAttention is in training mode"),
        (nn.Linear(2, 2).requires_grad_(False), "no parameter of the Linear has requires_grad"),
    ],
)
def test_modules_without_a_function_of_their_parameters_are_refused(module, message):
    with pytest.raises(ValueError, match=message):
        diamond.torch.functional(module)
    if any(p.requires_grad for p in module.parameters()):
        diamond.torch.functional(module.eval())


def test_the_module_stays_as_it_is():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))  # in training mode, without effect
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    params, apply = diamond.torch.functional(module)
    jax.grad(lambda p: apply(p, jnp.ones((3, 2))).sum())(params)
    assert all(part.training for part in module.modules())
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert tensor.data_ptr() != params[name].unsafe_buffer_pointer()


def test_a_module_put_into_training_mode_later_is_refused_at_its_use():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2)).eval()
    params, apply = diamond.torch.functional(module)
    assert apply(params, jnp.ones((3, 2))).shape == (3, 2)
    module.train()
    with pytest.raises(ValueError, match=r"call module.eval\(\) first"):
        apply(params, jnp.ones((3, 2)))
    module.eval()
    with pytest.raises(ValueError, match="differ from those of functional"):
        apply({**params, "other": 0}, jnp.ones((3, 2)))


def test_earlier_versions_are_refused_and_untested_ones_warn():
    tested = torch_versions.TORCHAX
    torch_versions.check_versions("2.13.0+cpu", tested)
    torch_versions.check_versions("2.15.1", tested)
    for versions in (("2.14.0", tested), ("2.13.0", "0.0.14"), ("2.13.0", "0.0.14.dev20261101")):
        with pytest.warns(RuntimeWarning, match=f"pip install 'torchax=={tested}"):
            torch_versions.check_versions(*versions)
    too_old = ("2.12.1", tested), ("2.13.0", "0.0.13"), ("2.13.0", "0.0.14.dev20261001")
    for versions in (*too_old, ("2.13.0", None), (None, tested)):
        with pytest.raises(ImportError, match=r"pip install 'torch>=2.13.0' 'torchax>=0.0.14.dev"):
            torch_versions.check_versions(*versions)


def test_one_torchax_is_tested_and_documented_and_no_extra_needs_a_development_build():
    root = Path(__file__).parents[2]
    pins = f"'torch=={torch_versions.TORCH}'", f"'torchax=={torch_versions.TORCHAX}'"
    assert all(pin in (root / "Makefile").read_text() for pin in pins)
    page = (root / "docs" / "how-to" / "pytorch.md").read_text()
    assert f"'torchax>={torch_versions.TORCHAX}'" in page
    assert ".dev" not in (root / "pyproject.toml").read_text()


def test_telemetry_of_torchax_is_off_before_its_import():
    code = (
        "import os, sys, diamond; f = diamond.torch.functional; assert 'torch' not in sys.modules;"
        "import torch; f(torch.nn.Linear(1, 1)); assert 'torchax' in sys.modules;"
        f"print(os.environ[{torch_versions.TELEMETRY!r}])"
    )
    environment = {**os.environ, torch_versions.TELEMETRY: "1"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert result.stdout.split() == [b"0"], result.stderr.decode()


def frozen_problem():
    """A problem whose module has a large frozen layer; the bias of 512 bytes stays a constant."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2))
    module[0].requires_grad_(False)
    params, apply = diamond.torch.functional(module)
    assert list(params) == ["2.weight", "2.bias"]
    upper = lambda x, y, rows: jnp.mean(apply(y, rows)[:, 0] ** 2) + jnp.sum((x - 1) ** 2)
    lower = lambda x, y, rows: upper(x, y, rows) + jnp.sum(x) * jnp.mean(y["2.weight"] ** 2)
    rows = [torch.randn(8, 128) for _ in range(3)]
    return diamond.Problem(upper, lower, lambda key: (jnp.zeros(1), params), rows, rows)


def test_frozen_parameters_are_arguments_of_the_program():
    problem = frozen_problem()
    assert problem.captured_bytes == 128 * 128 * 4
    constants = problem.objectives(4)
    baked = replace(constants, captured_bytes=0)
    point = problem.start(0)
    evaluate = lambda objectives, x, y: objectives.for_agent(0).g(x, y, 0)
    program = compile_program()(evaluate)
    texts = [program.lower(objectives, *point).as_text() for objectives in (constants, baked)]
    assert len(texts[1]) > 2 * problem.captured_bytes > 4 * len(texts[0])
    held = [
        program.lower(objectives, *point).compile().memory_analysis().argument_size_in_bytes
        for objectives in (constants, baked)
    ]
    assert held[0] - held[1] == problem.captured_bytes
    assert np.isfinite(simulate(problem, 2).history["local_loss"]).all()


def test_weights_go_back_into_the_module():
    module = small_module()
    run = simulate(make())
    for agent in (0, 2):
        loaded = module.load_state_dict(diamond.torch.state_dict(run.y, agent), strict=False)
        assert not loaded.unexpected_keys and not loaded.missing_keys
        a = np.random.default_rng(0).normal(size=(5, 4))
        y = jax.tree.map(lambda a, agent=agent: a[agent], run.y)
        ours = diamond.torch.functional(small_module())[1](y, a)
        np.testing.assert_allclose(module(torch.tensor(a)).detach(), ours, rtol=1e-12)
    np.testing.assert_array_equal(diamond.torch.state_dict(y, None)["0.bias"], y["0.bias"])
    with pytest.raises(TypeError, match="select the part that belongs to the module"):
        diamond.torch.state_dict({"net": run.y})


def test_rows_of_a_data_set_and_of_a_loader_are_the_same():
    rows = diamond.torch.rows(Numbers(1))
    loaded = diamond.torch.rows(torch.utils.data.DataLoader(Numbers(1), batch_size=5))
    for name, shape in (("a", (12, 4)), ("b", (12,))):
        assert rows[name].shape == shape
        np.testing.assert_array_equal(rows[name], loaded[name])
    pairs = torch.utils.data.TensorDataset(torch.ones(3, 2), torch.arange(3))
    assert [a.shape for a in diamond.torch.rows(pairs)] == [(3, 2), (3,)]
    with pytest.raises(ValueError, match="has no item"):
        diamond.torch.rows(Numbers(1, 0))


def test_a_stream_draws_items_of_the_agent_and_random_transforms_by_its_key():
    stream = diamond.torch.stream([Numbers(agent, 12 - agent) for agent in range(3)], evaluation=50)
    keys = jax.random.split(jax.random.key(0), 200)
    for agent in range(3):
        drawn = jax.jit(jax.vmap(stream.draw, (0, None)))(keys, agent)
        values = np.round(np.asarray(drawn["a"][:, 0]) * 100).astype(int) - 100 * agent
        assert {*values} == {*range(12 - agent)}  # all items, none of another agent
        np.testing.assert_array_equal(drawn["b"], values % 2)
    random = diamond.torch.stream([Numbers(0, is_random=True)], evaluation=4)
    first, again = (np.asarray(random.draw(keys[0], 5)["a"]) for _ in range(2))
    assert (first == again).all() and (first != np.asarray(random.draw(keys[1], 5)["a"])).all()
    with pytest.raises(TypeError, match="agent 0's ChainDataset has no items by index"):
        diamond.torch.stream([torch.utils.data.ChainDataset([])])


def test_runs_on_a_stream_repeat():
    datasets = [Numbers(agent, is_random=True) for agent in range(3)]
    stream = diamond.torch.stream(datasets, evaluation=[Numbers(agent) for agent in range(3)])
    runs = [simulate(make(train=stream)) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].x, runs[1].x)
    assert np.abs(runs[0].x - simulate(make()).x).max() > 0
