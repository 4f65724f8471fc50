"""Every import of the documentation, used as a user would: `mypy --strict` accepts this file.

Nothing is run when it is imported; `main` runs what takes a moment.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import diamond
import diamond.callbacks
import diamond.cost
import diamond.interface
import diamond.prox
import diamond.schedules
import diamond.tree
from diamond import Comparison, Diverged, Network, Problem, Run, callbacks, theory, tree
from diamond.cost import Cost
from diamond.gallery import (
    ArchitectureSearch,
    Cleaning,
    Evaluation,
    MarkovGame,
    Navigation,
    Portfolio,
    Quadratic,
    Rlhf,
    RobustRegression,
    quadratic,
)
from diamond.interface import Message, Method, Stage
from diamond.network import channels
from diamond.prox import box, simplex
from diamond.schedules import Number, Schedule, power

METHODS: list[Callable[..., Method]] = [
    diamond.adasdbo,
    diamond.aid,
    diamond.amigo,
    diamond.bome,
    diamond.br_fedbi,
    diamond.bsa,
    diamond.c2dfb,
    diamond.compose,
    diamond.d_soba,
    diamond.diamond,
    diamond.diamond_common,
    diamond.dsbo,
    diamond.dsgd,
    diamond.dsgda_gt,
    diamond.duet,
    diamond.exact_diffusion,
    diamond.extra,
    diamond.f2sa,
    diamond.f2sa_fused,
    diamond.fab,
    diamond.fsla,
    diamond.gda,
    diamond.gossip_dsbo,
    diamond.gt_saga,
    diamond.gt_sarah,
    diamond.gt_sgd,
    diamond.gt_storm,
    diamond.interact,
    diamond.itd,
    diamond.k_free,
    diamond.lopa,
    diamond.m_sgd,
    diamond.ma_dsbo,
    diamond.ma_soba,
    diamond.mdbo,
    diamond.meha,
    diamond.momentum_tracking,
    diamond.mrbo,
    diamond.optimistic_gda,
    diamond.prometheus,
    diamond.push_diging,
    diamond.pzobo,
    diamond.rsvrb,
    diamond.s3ldbo,
    diamond.saba,
    diamond.scgd,
    diamond.sgp,
    diamond.sldbo,
    diamond.soba,
    diamond.sparkle,
    diamond.srba,
    diamond.stable,
    diamond.stocbio,
    diamond.sun_dsbo,
    diamond.sustain,
    diamond.svr_interact,
    diamond.ttsa,
    diamond.vrbo,
    diamond.vrdbo,
]


def problems(rows: list[Any], folder: Path) -> list[Problem]:
    """Every function of the gallery returns a problem."""
    backbone = lambda x, a: a @ x
    made: Quadratic = diamond.gallery.quadratic(agents=4, rows=8)
    game: MarkovGame = diamond.gallery.actor_critic(agents=3)
    plane: Navigation = diamond.gallery.navigation(agents=3)
    cleaning: Cleaning = diamond.gallery.hyper_cleaning(rows, rows, classes=2)
    values: Evaluation = diamond.gallery.policy_evaluation(agents=3)
    shared: Portfolio = diamond.gallery.portfolio(agents=3)
    robust: RobustRegression = diamond.gallery.robust_regression(rows, rows)
    annotated: Rlhf = diamond.gallery.rlhf(agents=3)
    search: ArchitectureSearch = diamond.gallery.architecture_search(
        rows, rows, classes=2, shape=(1, 2, 1)
    )
    stream = diamond.stream(lambda key, agent: {"a": jax.random.normal(key, (2,))}, 3)
    own = Problem(
        lambda x, rows: jnp.mean((rows["a"] - x) ** 2), None, lambda key: jnp.zeros(2), stream
    )
    return [
        made,
        game,
        plane,
        cleaning,
        values,
        shared,
        robust,
        annotated,
        search,
        own,
        diamond.gallery.distillation(rows, rows, classes=2),
        diamond.gallery.domain_weights(agents=2, width=8, layers=1, heads=2, length=4, rows=8),
        diamond.gallery.fair_weights(rows, rows),
        diamond.gallery.hyperparameter(rows, rows),
        diamond.gallery.meta_learning(rows, rows, classes=2),
        diamond.gallery.network_cleaning(rows, rows, classes=2, shape=(1, 2, 1), channels=(2,)),
        diamond.gallery.personal_lora(agents=2, widths=(4,), rows=8),
        diamond.gallery.regression(rows, rows),
        diamond.gallery.representation(backbone, lambda key: jnp.eye(2), rows, rows, classes=2),
        diamond.gallery.support_vectors(rows, rows),
    ]


def networks() -> list[Network]:
    """Networks by name, and with channels."""
    ring = diamond.network.ring(4)
    return [
        ring,
        ring.through(channels.quantized(bits=8)),
        ring.through(diamond.network.channels.top(terms=2)),
        diamond.network.erdos_renyi(4, p=0.9, seed=0),
        diamond.network.one_peer(4),
        diamond.network.wireless(positions=[(0.0, 0.0), (0.0, 0.2), (0.3, 0.0)], radius=0.5),
        diamond.network.from_graph(ring.graph),
        diamond.network.changing([ring, diamond.network.complete(4)]),
        diamond.network.directed(ring.graph.to_directed()),
    ]


def schedules() -> dict[str, Schedule | Number]:
    """Step sizes as functions of the round."""
    alpha = power(0.3)
    steps: dict[str, Schedule | Number] = {**diamond.schedules.paper(0.3, 1.0, 1.0, 1.0)}
    return steps | {
        "beta": diamond.schedules.scaled(0.5, alpha),
        "alpha": diamond.schedules.power(1),
    }


def files(folder: Path) -> list[Any]:
    """Readers and writers of files, and partitions of rows."""
    digits = diamond.data.digits()
    parts = diamond.data.partition.dirichlet(digits.train[1], 4, 0.5, seed=0)
    return [
        diamond.data.partition.split(parts, [0.5, 0.5], seed=0),
        diamond.data.partition.iid,
        diamond.data.partition.by_column,
        diamond.data.csv,
        diamond.problem_from_files,
        diamond.data.npz,
        diamond.data.join_files,
        diamond.data.lines,
        diamond.data.hashed,
        diamond.report.build,
        diamond.torch.rows,
        diamond.load,
    ]


def logged(problem: Problem, network: Network, algorithm: Method, folder: Path) -> Run:
    """A run whose evaluations go to TensorBoard."""
    with diamond.callbacks.tensorboard(folder) as on_evaluation:
        return diamond.simulate(problem, network, algorithm, 2, on_evaluation=on_evaluation)


class HeavyBall(Stage):
    """The stage of a method of one's own: `Stage` is its base."""

    repeats, hessian_batches, sends_before_gradient = 1, 0, False

    def estimate(self, problem: Any, state: Any, t: Number, sample: Any) -> tuple[Any, Cost]:
        return tree.zeros(state.x), Cost(samples=1)

    def outgoing(self, state: Any, estimate: Any, t: Number) -> Message:
        return Message(average=state.x)

    def update(self, state: Any, estimate: Any, sent: Message, change: Message, t: Number) -> Any:
        return state._replace(x=diamond.tree.add(state.x, change.average))


def main(folder: Path) -> Comparison:
    """A run, a comparison and the theory of a small problem."""
    stage: Stage = HeavyBall()
    assert not stage.sends_before_gradient and box(0, 1) and simplex() and diamond.prox.l1(0.1)
    problem, network = quadratic(agents=4, upper=2, lower=2, rows=8), diamond.network.ring(4)
    inverse = diamond.hypergradient.conjugate_gradient(2)
    algorithm = diamond.diamond(0.05, 0.1, batch=4, hypergradient=inverse)
    hypergradients = diamond.hypergradient.neumann(), diamond.hypergradient.check
    solution = diamond.implicit.argmin(lambda x, y: jnp.sum((y - x) ** 2), 1.0, 0.0)
    assert abs(float(solution) - 1) < 1e-3 and callable(diamond.implicit.root)
    run: Run = diamond.simulate(problem, network, algorithm, rounds=2)
    assert diamond.compare_alone(run).cooperation is not None
    assert diamond.with_optimizers(algorithm).batch == algorithm.batch
    assert diamond.private(algorithm, epsilon=2, rounds=2).batch == algorithm.batch
    assert run.per_agent["consensus"].shape[1] == network.agents == problem.agents
    assert network.phases == (network,) and run.messages == network.count_messages(run.rounds)
    try:
        result = diamond.compare(problem, network, {"mine": algorithm}, rounds=2)
    except Diverged as error:
        raise AssertionError(error.run.message) from error
    assert diamond.solve(problem, network, rounds=1).rounds == 1
    estimator = diamond.estimators.SharedPenaltyRegressor(penalty=0.1)
    assert estimator.get_params()["penalty"] == 0.1
    others = theory.Constants, diamond.theory.theorem1, callbacks.mlflow
    assert len(hypergradients) == 2 and len(others) == 3
    assert diamond.cost.Cost(samples=1).samples == 1 and diamond.interface.NETWORKS
    assert diamond.algorithms.choose("auto", None, alpha=0.1)[0] == "paper"
    paths: list[Path] = [run.save(folder / "run"), result.save(folder / "compared")]
    loaded = diamond.load(paths[0], problem)
    assert isinstance(loaded, Run)
    return result
