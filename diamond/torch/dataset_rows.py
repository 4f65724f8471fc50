"""Data sets of PyTorch as rows of the agents: in memory, or drawn when they are needed."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import host_transfer
from ..problem import stream as problem_stream
from ..problem.loss_errors import shapes
from .torch_versions import import_torch

Tree = Any
SAME_SHAPE = "pad or crop the items to one shape, as in a transform of the data set"


def rows(data: Any) -> Tree:
    """Read a data set of one agent into memory.

    Args:
        data: a `torch.utils.data.Dataset`, or a `DataLoader`, which is read once to its end. A
            loader with `shuffle=True` is read in the order of its data set, so that runs repeat.

    Returns:
        The rows as a pytree of numpy arrays, in the structure of an item of the data set: a tuple
        (image, label) gives a tuple of two arrays.
    """
    torch = import_torch()
    if isinstance(data, list | tuple) and isinstance(
        next(iter(data), None), torch.utils.data.Dataset | torch.utils.data.DataLoader
    ):
        raise TypeError(
            "rows reads the data set of one agent: call it once per agent, as in "
            "[diamond.torch.rows(dataset) for dataset in datasets]"
        )
    is_loader = isinstance(data, torch.utils.data.DataLoader)
    source = _in_order(data) if is_loader else (stack_items([item]) for item in _items(data))
    batches: list[Tree] = []
    try:
        for batch in source:
            batches.append(_as_arrays(batch))
            name = f"{'batch' if is_loader else 'item'} {len(batches) - 1} of the data set"
            _check_form(name, batches[-1], batches[0])
    except RuntimeError as cause:  # of the loader, which stacks items
        raise ValueError(f"{cause}: {SAME_SHAPE}") from cause
    if not batches:
        raise ValueError("the data set has no item; give the agent some, or leave it out")
    return jax.tree.map(lambda *a: np.concatenate(a), *batches)


def stream(
    datasets: Sequence[Any],
    evaluation: int | Sequence[Any] = 1000,
    large: int | None = None,
    seed: int = 0,
) -> Any:
    """Draw the rows of each agent from its data set when they are needed, with replacement.

    The data sets stay where they are, such as on disk. The compiled round asks Python for every
    batch, so this is slower than `rows`. Random transforms that use the random numbers of PyTorch
    become functions of the key of a draw.

    Args:
        datasets: one map-style `Dataset`, or `DataLoader` of one, per agent.
        evaluation: see `diamond.stream`; entries of a list may be data sets too.
        large: see `diamond.stream`.
        seed: see `diamond.stream`.

    Returns:
        A `diamond.stream` for `train`, `valid` or `test` of a `Problem`.
    """
    sources = [_Source(data, agent) for agent, data in enumerate(datasets)]
    if not sources:
        raise ValueError("there is no data set: give one per agent")
    sizes = jnp.asarray([source.size for source in sources], jnp.int32)
    example = sources[0].read(0, 0)
    for source in sources:
        source.example = example
        source.read(source.size - 1, 0)
    forms = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, _canonical(a.dtype)), example)
    only = len(sources) == 1  # at a site, the agent's number in the network is not an index

    def fetch(agents: Any, indices: Any, seeds: Any) -> Tree:
        numbers = np.broadcast_arrays(*map(np.asarray, (agents, indices, seeds)))
        shape = numbers[0].shape
        items = [
            sources[0 if only else agent].read(index, one_seed)
            for agent, index, one_seed in zip(*(a.ravel().tolist() for a in numbers))
        ]
        stack = lambda form, *a: np.stack(a).astype(form.dtype).reshape(shape + form.shape)
        return jax.tree.map(stack, forms, *items)

    def draw(key: jax.Array, agent: jax.Array) -> Tree:
        place, transform = jax.random.split(key)
        count = sizes[0] if only else sizes[agent]
        index = jax.random.randint(place, (), 0, count)
        seed = jax.random.bits(transform, (), jnp.uint32)
        return jax.pure_callback(fetch, forms, agent, index, seed, vmap_method="broadcast_all")

    if not isinstance(evaluation, int):
        evaluation = [partial(rows, data) if _is_torch_data(data) else data for data in evaluation]
    return problem_stream(draw, len(sources), evaluation, large, seed)


class _Source:
    """Random access to the items of one agent's data set."""

    def __init__(self, data: Any, agent: int):
        torch = import_torch()
        dataset = data
        if isinstance(data, torch.utils.data.DataLoader):
            _check_sampler(data)
            dataset = data.dataset
        if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(
            dataset, "__getitem__"
        ):
            raise TypeError(
                f"agent {agent}'s {type(dataset).__name__} has no items by index, so rows cannot "
                f"be drawn from it: read it into memory by diamond.torch.rows"
            )
        self.dataset, self.size, self.agent = dataset, len(dataset), agent
        self.example: Tree | None = None  # has the form of all items
        if not self.size:
            raise ValueError(f"agent {agent}'s data set has no item")

    def read(self, index: int, seed: int) -> Tree:
        """Return an item as arrays; its random transforms depend on the seed alone."""
        torch = import_torch()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            item = jax.tree.map(lambda a: a[0], _as_arrays(stack_items([self.dataset[index]])))
        if self.example is not None:
            _check_form(
                f"item {index} of agent {self.agent}'s data set", item, self.example, batch_axes=0
            )
        return item


def stack_items(items: Sequence[Any]) -> Any:
    """Collate items of a data set into a batch, as a `DataLoader` does by default."""
    collate: Callable[[Sequence[Any]], Any] = import_torch().utils.data.default_collate
    return collate(items)


def _items(dataset: Any) -> Iterable[Any]:
    """Iterate over a data set: by index if it has a length, else by its own iteration."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return (dataset[index] for index in range(len(dataset)))
    return iter(dataset)


def _check_form(name: str, rows: Tree, first: Tree, batch_axes: int = 1) -> None:
    """Check that rows have the structure and shapes of the first ones."""
    form = lambda a: jax.ShapeDtypeStruct(a.shape[batch_axes:], a.dtype)
    ours, wanted = jax.tree.map(form, rows), jax.tree.map(form, first)
    leaves = jax.tree_util.tree_leaves_with_path
    sizes = lambda tree: [(path, leaf.shape) for path, leaf in leaves(tree)]
    if sizes(ours) != sizes(wanted):
        raise ValueError(f"{name} is {shapes(ours)}, the first one {shapes(wanted)}: {SAME_SHAPE}")


def _check_sampler(loader: Any) -> None:
    """Reject a loader that selects items at random: a run could not be repeated."""
    data = import_torch().utils.data
    sampler = loader.sampler
    is_random = isinstance(sampler, data.WeightedRandomSampler | data.SubsetRandomSampler)
    if is_random or getattr(sampler, "replacement", False):
        raise ValueError(
            f"the DataLoader selects items at random by {type(sampler).__name__}, so that a run "
            f"could not be repeated: give the data set itself, or a torch.utils.data.Subset of it"
        )


def _in_order(loader: Any) -> Any:
    """Return the loader without its shuffling."""
    data = import_torch().utils.data
    _check_sampler(loader)
    if not isinstance(loader.sampler, data.RandomSampler) or loader.batch_size is None:
        return loader
    return data.DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        drop_last=loader.drop_last,
    )


def _is_torch_data(data: Any) -> bool:
    torch = import_torch()
    return isinstance(data, torch.utils.data.Dataset | torch.utils.data.DataLoader)


def _as_arrays(batch: Any) -> Tree:
    """Return a batch with its tensors as numpy arrays; lists of a collated batch become tuples."""
    if isinstance(batch, dict):
        return {name: _as_arrays(value) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(map(_as_arrays, batch))
    return np.asarray(host_transfer.without_tensors(batch))


def _canonical(dtype: Any) -> Any:
    """Return the type that JAX has for this one: without x64, int32 for int64."""
    return jax.dtypes.canonicalize_dtype(dtype)
