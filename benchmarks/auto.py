"""`solve` beside DIAMOND with a truncated chain and L-BFGS, on problems drawn by a seed.

    PYTHONPATH=. python benchmarks/auto.py --seeds 1,2 --groups ridge,meta --processes 16

Prints one row a problem, as it is done, and then how many runs end above their start, and of how
many problems with a condition of 1000 or more `solve` leaves a fifth of the chain's gap or less.
Another seed draws other problems of the same kinds (`auto_problems.py`). Both methods learn their
step sizes; the chain is that of eq. (5), whose 32 terms leave out most of the inverse of an
ill-conditioned g_yy. The gap is (loss - lowest) / (first - lowest), lowest the smaller of what
L-BFGS finds on the exact objective in float64 and of both runs; below 1 % counts as closed.
"""

import argparse
import multiprocessing
import os
import time
import warnings
import zlib

STEPS = 200  # of L-BFGS
LARGE = {"features": 8}  # groups that have so many times fewer rounds
CLOSED, FIFTH, ILL = 0.01, 0.2, 1000.0


def final(problem, network, algorithm, rounds):
    """The first and the last upper loss; infinite where the run diverged."""
    import diamond

    try:
        run = diamond.simulate(problem, network, algorithm, rounds, every=rounds, progress=False)
    except diamond.Diverged as error:
        return float(error.run.history["upper_loss"][0]), float("inf")
    first, last = map(float, run.history["upper_loss"][[0, -1]])
    return first, last if last == last else float("inf")


def condition(problem):
    """The largest condition of g_yy over the agents, where they start."""
    import jax
    import numpy as np
    from jax.flatten_util import ravel_pytree

    x, y = problem.start(0)
    flat, shape = ravel_pytree(y)
    objectives = problem.objectives(1)

    def lower_hessian(agent):
        return jax.hessian(lambda v: objectives.for_agent(agent).g(x, shape(v), None))(flat)

    if flat.size > 2000:
        return float("nan")
    values = [
        np.linalg.eigvalsh(np.asarray(lower_hessian(i), float)) for i in range(problem.agents)
    ]
    return max(float(v[-1] / max(v[0], 1e-9 * v[-1])) for v in values)


def lowest(problem):
    """The lowest upper loss that L-BFGS finds on the exact objective, in float64."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.flatten_util import ravel_pytree
    from scipy.optimize import minimize

    from diamond.metrics import lower_solution

    real = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
    wide = lambda t: jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if real(a) else a, t)
    with jax.enable_x64(True):
        x, y = wide(problem.start(0))
        objectives, (flat, shape) = wide(problem.objectives(1)), ravel_pytree(x)

        @jax.jit
        def exact(v, ys):
            def alone(own, y):
                found = lower_solution.solve_lower_level(own, shape(v), y)
                h = lower_solution.hypergradient(own, shape(v), found.y)
                return own.f(shape(v), found.y, None), ravel_pytree(h)[0], found.y

            losses, h, ys = jax.vmap(alone)(objectives, ys)
            return losses.mean(), h.mean(0), ys

        near = [jax.tree.map(lambda a: jnp.broadcast_to(a, (problem.agents, *a.shape)), y)]
        seen = []

        def value(v):
            loss, h, ys = exact(jnp.asarray(v), near[0])
            if not np.isfinite(loss):
                return 1e30, np.zeros_like(v)
            near[0] = ys
            seen.append(float(loss))
            return float(loss), np.asarray(h, float)

        first, _ = value(np.asarray(flat))
        scale = 1 / max(abs(first), 1e-30)  # its tolerances are absolute
        about = lambda v: tuple(scale * part for part in value(v))
        options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 1e-13, "gtol": 1e-9}
        minimize(about, np.asarray(flat), jac=True, method="L-BFGS-B", options=options)
    return min(seen)


def run_case(task):
    """A row of the table."""
    group, name, seed, rounds = task
    import auto_problems
    import numpy as np

    import diamond
    from diamond.catalogue import maker

    warnings.simplefilter("ignore")
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    problem, network, batch = auto_problems.GROUPS[group][name](random)
    rounds //= LARGE.get(group, 1)
    exact = lowest(problem)
    chain = diamond.diamond(batch=batch, hypergradient=diamond.hypergradient.neumann())
    first, solved = final(problem, network, maker("solve")(batch), rounds)
    _, other = final(problem, network, chain, rounds)
    least = min(exact, solved, other)
    gaps = [(loss - least) / max(first - least, 1e-30) for loss in (solved, other)]
    above = solved > first + 1e-6 * abs(first)
    return f"{group} {name} {seed}", condition(problem), gaps, above


def judged(rows):
    """What was met, in words."""
    above = [name for name, _, _, over in rows if over]
    ill = [gaps for _, kappa, gaps, _ in rows if kappa >= ILL]
    met = sum(gaps[0] <= max(FIFTH * gaps[1], CLOSED) for gaps in ill)
    within = sum(gaps[0] <= CLOSED for _, _, gaps, _ in rows)
    return (
        f"{len(above)} of {len(rows)} end above their start {above or ''}\n"
        f"{met} of {len(ill)} with a condition of 1000 or more leave a fifth of the chain's gap\n"
        f"{within} of {len(rows)} are closed"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="4101")
    parser.add_argument("--groups", default="")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    options = parser.parse_args()
    import auto_problems

    groups = options.groups.split(",") if options.groups else list(auto_problems.GROUPS)
    tasks = [
        (group, name, int(seed), options.rounds)
        for seed in options.seeds.split(",")
        for group in groups
        for name in auto_problems.GROUPS[group]
    ]
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    rows, started = [], time.time()
    print(f"{'problem':40s} condition  gap of solve  of the chain", flush=True)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for row in pool.imap_unordered(run_case, tasks):
            rows.append(row)
            name, kappa, (gap, chain_gap), above = row
            mark = "  above its start" if above else ""
            print(f"{name:40s} {kappa:9.3g}  {gap:12.2%}  {chain_gap:12.2%}{mark}", flush=True)
            if time.time() - started > options.limit:
                pool.terminate()
                break
    print(judged(rows))


if __name__ == "__main__":
    main()
