"""Tensors where arrays may stand, and errors that name cause, place and remedy."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diamond

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
pytest.importorskip("torchax", reason="torchax is not installed: make test-torch")

nn, data = torch.nn, torch.utils.data
FEATURES = torch.arange(40.0).reshape(10, 4) / 40
LABELS = torch.arange(10) % 3


class Module(nn.Module):
    """A linear layer before or after another function."""

    def __init__(self, function=lambda a: a, after=lambda a: a):
        super().__init__()
        self.linear, self.function, self.after = nn.Linear(4, 3), function, after

    def forward(self, a):
        return self.after(self.linear(self.function(a)))


def make(module=None, rows=(FEATURES, LABELS)):
    params, apply = diamond.torch.functional(module or Module())
    cross_entropy = diamond.torch.function(nn.functional.cross_entropy)
    upper = lambda x, y, rows: cross_entropy(apply(y, rows[0]), rows[1])
    lower = lambda x, y, rows: upper(x, y, rows) + jnp.exp(x) * jnp.sum(y["linear.weight"] ** 2)
    start = lambda key: (torch.zeros(()), params)
    return diamond.Problem(upper, lower, start, [rows] * 2, [rows] * 2, convex=False)


def keep_positive(a):
    return a if a.sum() > 0 else -a


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Module(keep_positive), r"if a.sum\(\) > 0 .*in a PyTorch module, torch.where"),
        (Module(lambda a: torch.tensor(a.numpy())), "in a PyTorch module, torch.where"),
        (Module(nn.functional.dropout), r"Module draws random numbers.*call module.eval\(\) first"),
        (Module(torch.randn_like), "Module draws random numbers.*random numbers as an input"),
        (Module(lambda a: a[:, :3]), r"in line .* of test_torch_inputs.py.*rows are \(float"),
    ],
)
def test_modules_that_cannot_be_compiled_are_refused_with_the_line(module, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(module)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((FEATURES, nn.functional.one_hot(LABELS)), "Expected floating point type for target"),
        ((FEATURES, LABELS[:, None]), "0D or 1D target tensor expected"),
        ((FEATURES, LABELS.double()), "Indexer must have integer"),
        ((FEATURES.bfloat16(), LABELS), "have dtype bfloat16; convert them"),
        (
            data.TensorDataset(FEATURES, LABELS),
            "TensorDataset of PyTorch: read .* diamond.torch.rows",
        ),
        (data.DataLoader(range(3)), "DataLoader of PyTorch: read that of each agent into memory"),
    ],
)
def test_rows_that_the_loss_cannot_use_are_refused(rows, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(rows=rows)


def test_only_modules_are_split():
    with pytest.raises(TypeError, match=r"takes a torch.nn.Module, not OrderedDict"):
        diamond.torch.functional(Module().state_dict())


def test_tensors_may_stand_where_arrays_do():
    network = diamond.network.wireless(radius=2, positions=torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    wanted = diamond.network.wireless(radius=2, positions=[[0.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(network.weights.toarray(), wanted.weights.toarray())

    def problem(convert):
        loss = lambda x, y, rows: jnp.mean((rows @ y["w"] - x[0]) ** 2)
        lower = lambda x, y, rows: loss(x, y, rows) + y["w"] @ y["w"]
        start = lambda key: (convert(np.ones(2)), {"w": convert(np.arange(4.0))})
        rows = [convert(FEATURES.double().numpy() + i) for i in range(2)]
        return diamond.Problem(loss, lower, start, rows, rows)

    with_gradient = lambda a: nn.Parameter(torch.tensor(a))
    kinds = {"tensors": with_gradient, "arrays": np.asarray}
    problems = {name: problem(convert) for name, convert in kinds.items()}
    for part in ("train", "valid"):
        rows = [problems[name].rows[part][1] for name in kinds]
        np.testing.assert_array_equal(*rows)
    starts = [jax.tree.leaves(problems[name].start(0)) for name in kinds]
    for ours, theirs in zip(*starts):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(
        diamond.core.host_transfer.without_tensors(FEATURES.bfloat16()).astype(np.float32),
        FEATURES.bfloat16().float(),
    )


@pytest.mark.parametrize("order", [range(4), (0, 3, 1, 2)])
def test_items_of_unequal_shapes_are_named(order):
    items = [(torch.ones(5 if i == 3 else 4), i) for i in order]
    place = list(order).index(3)
    with pytest.raises(ValueError, match=rf"item {place} of the data set .*\[5\].*pad or crop"):
        diamond.torch.rows(items)
    with pytest.raises(ValueError, match=r"batch 1 .*\[5\].*pad|stack expects each .*pad or crop"):
        diamond.torch.rows(data.DataLoader(items, batch_size=2))
    with pytest.raises(ValueError, match=rf"item {place} of agent 1's data set .*pad or crop"):
        diamond.torch.stream([items[:1], items[: place + 1]])
    with pytest.raises(ValueError, match=r"item 1 of the data set is {'b': .*the first one {'a'"):
        diamond.torch.rows([{"a": 1}, {"b": 1}])


def test_a_shuffled_loader_is_read_in_the_order_of_its_data_set():
    pairs = data.TensorDataset(FEATURES, LABELS)
    for drop_last, count in ((False, 10), (True, 8)):
        loader = data.DataLoader(pairs, batch_size=4, shuffle=True, drop_last=drop_last)
        features, labels = diamond.torch.rows(loader)
        np.testing.assert_array_equal(features, FEATURES[:count])
        np.testing.assert_array_equal(labels, LABELS[:count])
    for sampler in (
        data.WeightedRandomSampler([1.0] * 10, 10),
        data.SubsetRandomSampler([1, 2]),
        data.RandomSampler(pairs, replacement=True),
    ):
        loader = data.DataLoader(pairs, sampler=sampler)
        for convert in (diamond.torch.rows, lambda loader: diamond.torch.stream([loader])):
            with pytest.raises(ValueError, match=f"{type(sampler).__name__}.*Subset of it"):
                convert(loader)


def test_layers_in_place_give_the_values_of_torch():
    def set_first(a):
        a[:, 0] = 2.0
        return a.mul_(3)

    module = nn.Sequential(Module(set_first), nn.ReLU(inplace=True))
    params, apply = diamond.torch.functional(module)
    rows = jnp.asarray(FEATURES)
    ours = jax.jit(apply)(params, rows)
    np.testing.assert_allclose(ours, module(FEATURES.clone()).detach(), rtol=1e-6)
    np.testing.assert_array_equal(rows, FEATURES)


class WritesIntoView(torch.nn.Module):
    """Sets the first number to 1 through a reshaped view, which JAX does not see."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, a):
        a = self.layer(a)
        a.view(-1)[0] = 1
        return a


def test_a_lost_change_in_place_is_warned_of_once():
    params, apply = diamond.torch.functional(WritesIntoView())
    a = jnp.ones((4, 3))
    with pytest.warns(RuntimeWarning, match="WritesIntoView and the module give different outputs"):
        jax.jit(apply)(params, a)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apply(params, a)


@pytest.mark.parametrize("loss", [nn.functional.cross_entropy, nn.CrossEntropyLoss()])
def test_labels_outside_of_the_classes_make_the_loss_nan(loss):
    """PyTorch raises an error; JAX would take the nearest class."""
    scores, entropy = jnp.eye(3), diamond.torch.function(loss)
    right = jnp.array([0, -100, 2])
    expected = loss(torch.eye(3), torch.tensor([0, -100, 2]))
    assert float(jax.jit(entropy)(scores, right)) == pytest.approx(float(expected))
    for wrong in 3, -1:
        assert np.isnan(jax.jit(entropy)(scores, right.at[0].set(wrong)))
    each = diamond.torch.function(nn.functional.cross_entropy)
    values = each(scores, jnp.array([0, 3, 2]), reduction="none")
    assert list(np.isnan(values)) == [False, True, False]


def test_the_state_with_a_module_has_its_buffers():
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    module[1].running_mean += 1
    params, _ = diamond.torch.functional(module)
    other = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    other.load_state_dict(diamond.torch.state_dict(params, agent=None, module=module))
    assert torch.equal(other.eval()(FEATURES), module(FEATURES))
    with pytest.raises(ValueError, match=r"0.weight is \(4,\) here and \(3, 4\) in the module"):
        diamond.torch.state_dict(params, module=module)
    with pytest.raises(ValueError, match="no agent 7: the parameters have 3 along"):
        diamond.torch.state_dict(params, agent=7)


def test_data_sets_where_rows_belong_are_named():
    dataset = data.TensorDataset(FEATURES, LABELS)
    with pytest.raises(TypeError, match="call it once per agent"):
        diamond.torch.rows([dataset])
    with pytest.raises(TypeError, match=r"training rows are a DataLoader .* diamond\.torch\.rows"):
        diamond.Problem(len, None, jnp.zeros, data.DataLoader(dataset))
