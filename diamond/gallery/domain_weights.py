"""Domain weights: which sources of text a language model should be trained on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import LowerLevel, Problem
from ._separation import auc
from ._transformer import initialize, token_losses

SUCCESSORS = 4  # likely successors of a token
DIALECT = 0.5  # share of a source's own transitions; the rest are those of all clean sources
RANDOM = 0.02  # probability of a random token in clean text


class DomainWeights(Problem):
    """A problem that knows which sources are clean."""

    clean: np.ndarray  # (sources,) of bool
    entropy: float  # least possible validation loss, of a reader who knows the source; nan: unknown

    def weights(self, x: Any) -> np.ndarray:
        """Return the weights of the sources, of one agent or the mean of all; their sum is 1."""
        mean = np.asarray(x, np.float64).reshape(-1, self.clean.size).mean(0)
        powers = np.exp(mean - mean.max())
        return powers / powers.sum()

    def auc(self, x: Any) -> float:
        """Return the probability that a clean source has a larger weight than a noisy source."""
        return float(auc(jnp.asarray(self.weights(x)), self.clean))


def domain_weights(
    agents: int = 8,
    sources: int = 6,
    noise: int = 3,
    width: int = 64,
    *,
    layers: int = 2,
    heads: int = 4,
    length: int = 32,
    vocabulary: int = 64,
    rows: int = 512,
    regularizer: float = 1e-5,
    texts: Sequence[str] = (),
    clean_text: str = "",
    seed: int = 0,
    lower_level: LowerLevel = "personal",
    remat: bool = False,
) -> DomainWeights:
    """Make a problem of weights for the sources of text that train a language model.

        f_i = mean_r loss(y; r) over agent i's validation rows, from clean sources only
        g_i = mean_r w_k(r) loss(y; r) + regularizer ||y||^2 over its training rows, k(r): source
        w = sources * softmax(x), loss(y; r) = mean over tokens of -log p(token | tokens before it)

    x, shared, has one number per source and starts at equal weights. y_i is a transformer of about
    12 layers width^2 numbers: not convex, so that runs are measured without y*(x). By default the
    text is synthetic: a clean source is a Markov chain with transitions of its own and others that
    all clean sources have in common, a noisy source has random tokens.

    Args:
        agents: number of agents.
        sources: number of sources; every agent has training rows of all sources.
        noise: number of sources with random tokens, the last ones.
        width: numbers per token inside the transformer, a multiple of `heads`.
        layers: number of blocks.
        heads: attention heads.
        length: tokens of a row.
        vocabulary: number of tokens; bytes of `texts` are taken modulo this number.
        rows: training rows per agent; half as many for validation and for the metrics.
        regularizer: weight of ||y||^2.
        texts: paths of text files, one per source, instead of synthetic text; `sources` is then
            their number. The agents hold rows from successive parts of each file.
        clean_text: path of the text file with the validation rows for `texts`.
        seed: seed of the text.
        lower_level: "personal": each agent trains its own network. "common": one network for all.
        remat: compute the activations of a block again in the backward pass, to save memory.

    Returns:
        The problem; its metrics are the validation loss on other rows, `test_loss`, the
        `clean_weight` of all clean sources together, and `auc` of clean against noisy sources.
    """
    sizes = {"agents": agents, "width": width, "layers": layers, "heads": heads, "length": length}
    for name, size in sizes.items():
        as_int(name, size, 1)
    as_int("rows", rows, 2)
    as_int("vocabulary", vocabulary, 2)
    if width % heads:
        raise ValueError(f"width = {width} with {heads} heads; give a multiple of heads")
    if not texts and not 0 <= as_int("noise", noise, 0) < as_int("sources", sources, 1):
        raise ValueError(f"noise = {noise} of {sources} sources; leave at least one clean source")
    if texts and not clean_text:
        raise ValueError("texts without clean_text; give the path of the text to validate on")
    random = np.random.default_rng(as_int("seed", seed, 0))
    shape = agents, rows, length + 1
    if texts:
        parts, entropy = (
            _read_texts(random, texts, clean_text, shape, vocabulary=vocabulary),
            float("nan"),
        )
        sources, noise = len(texts), 0
    else:
        parts, entropy = _write_texts(random, sources, noise, shape, vocabulary=vocabulary)
    clean = np.arange(sources) < sources - noise

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.zeros(sources), initialize(key, vocabulary, length, width, layers)

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(token_losses(y, rows["tokens"], heads, remat))

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        weights = sources * jax.nn.softmax(x)[rows["k"]]
        losses = jnp.mean(token_losses(y, rows["tokens"], heads, remat), 1)
        square = sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(y))
        return jnp.mean(weights * losses) + regularizer * square

    metrics: dict[str, Any] = {"test_loss": upper}
    if noise:
        metrics["clean_weight"] = lambda x, y, rows: jnp.sum(jnp.where(clean, jax.nn.softmax(x), 0))
        metrics["auc"] = lambda x, y, rows: auc(x, clean)
    problem = DomainWeights(
        upper,
        lower,
        init,
        train=parts[0],
        valid=parts[1],
        test=parts[2],
        metrics=metrics,
        lower_level=lower_level,
        names=[Path(path).stem for path in texts] or _source_names(clean),
        x_meaning="log-weight",
        convex=False,
    )
    problem.clean, problem.entropy = clean, entropy
    return problem


def _source_names(clean: np.ndarray) -> list[str]:
    return [f"{'clean' if is_clean else 'noise'} {k}" for k, is_clean in enumerate(clean)]


def _write_texts(
    random: np.random.Generator,
    sources: int,
    noise: int,
    shape: tuple[int, int, int],
    *,
    vocabulary: int,
) -> tuple[list[list[Tree]], float]:
    """Return synthetic rows (train, valid, test) of all agents, and the entropy of clean text."""
    clean = sources - noise
    shared = _transitions(random, vocabulary)
    laws = np.stack(
        [DIALECT * _transitions(random, vocabulary) + (1 - DIALECT) * shared for _ in range(clean)]
        + [np.full((vocabulary, vocabulary), 1 / vocabulary)] * noise
    )
    laws = RANDOM / vocabulary + (1 - RANDOM) * laws
    agents, rows, tokens = shape
    parts = []
    for count, last in ((rows, sources), (rows - rows // 2, clean), (rows - rows // 2, clean)):
        k = random.integers(0, last, (agents, count)).astype(np.int32)
        text = _sample(random, laws, k.reshape(-1), tokens).reshape(agents, count, tokens)
        parts.append([{"tokens": t, "k": source} for t, source in zip(text, k)])
    valid = parts[1]
    first, following = (
        np.concatenate([rows["tokens"][:, s] for rows in valid])
        for s in (slice(-1), slice(1, None))
    )
    source = np.concatenate([rows["k"] for rows in valid])[:, None]
    return parts, float(-np.mean(np.log(laws[source, first, following])))


def _transitions(random: np.random.Generator, vocabulary: int) -> np.ndarray:
    """Return a random transition law with a few likely successors of each token."""
    count = min(SUCCESSORS, vocabulary)
    law = np.zeros((vocabulary, vocabulary))
    for token in range(vocabulary):
        law[token, random.permutation(vocabulary)[:count]] = random.dirichlet(np.ones(count))
    return law


def _sample(
    random: np.random.Generator, laws: np.ndarray, k: np.ndarray, tokens: int
) -> np.ndarray:
    """Return one path of the chain laws[k] for every entry of k."""
    sums = laws.cumsum(-1)
    text = np.empty((len(k), tokens), np.int32)
    text[:, 0] = random.integers(0, laws.shape[1], len(k))
    for t in range(1, tokens):
        levels = random.random((len(k), 1))
        text[:, t] = np.sum(sums[k, text[:, t - 1], :-1] < levels, 1)
    return text


def _read_texts(
    random: np.random.Generator,
    texts: Sequence[str],
    clean_text: str,
    shape: tuple[int, int, int],
    *,
    vocabulary: int,
) -> list[list[Tree]]:
    """Return rows (train, valid, test) of all agents from text files."""
    agents, rows, tokens = shape
    files = [_read_tokens(path, vocabulary, 2 * agents * tokens) for path in (*texts, clean_text)]

    def cut(file: np.ndarray, part: int, parts: int, count: int) -> np.ndarray:
        """Return random rows of one of `parts` successive parts of a file."""
        size = len(file) // parts
        starts = part * size + random.integers(0, size - tokens + 1, count)
        return file[starts[:, None] + np.arange(tokens)]

    train = []
    for agent in range(agents):
        k = np.sort(random.integers(0, len(texts), rows)).astype(np.int32)
        text = [
            cut(files[s], agent, agents, int(n))
            for s, n in enumerate(np.bincount(k, None, len(texts)))
        ]
        train.append({"tokens": np.concatenate(text), "k": k})
    half = rows - rows // 2
    valid, test = (
        [{"tokens": cut(files[-1], 2 * agent + odd, 2 * agents, half)} for agent in range(agents)]
        for odd in (0, 1)
    )
    return [train, valid, test]


def _read_tokens(path: str, vocabulary: int, least: int) -> np.ndarray:
    """Return the bytes of a text file as tokens."""
    tokens = np.frombuffer(Path(path).read_bytes(), np.uint8).astype(np.int32) % vocabulary
    if len(tokens) < least:
        raise ValueError(f"{path} has {len(tokens)} bytes; these sizes need at least {least}")
    return tokens
