"""Time and memory of methods beside plain training of the same networks."""

import itertools
import json
import time

from large_common import (
    BATCH,
    METHODS,
    SIZES,
    make_method,
    make_problem,
    peak_bytes,
    plain_program,
    plain_training,
    reset_peak,
    spawn,
    write,
)


def measure_plain(problem, optimizer, batch, steps, precision=None):
    """Return seconds to the first step, milliseconds a step and the peak of plain training."""
    import jax

    reset_peak()
    begun = time.perf_counter()
    train, start = plain_training(problem, optimizer, batch, steps, precision=precision)
    state = jax.block_until_ready(train(start(), 0))
    first = time.perf_counter() - begun
    times = []
    for repeat in (1, 2):
        begun = time.perf_counter()
        state = jax.block_until_ready(train(state, repeat * steps))
        times.append((time.perf_counter() - begun) / steps)
    del state
    return {"first": first - min(times) * (steps - 1), "ms": 1e3 * min(times), "peak": peak_bytes()}


def measure_method(problem, name, batch, rounds, **options):
    """Return seconds to the end of the first round, milliseconds a round and the peak."""
    import diamond

    reset_peak()
    begun, walls = time.perf_counter(), {}
    rounds_measured = [1, 1 + rounds, 1 + 2 * rounds]
    run = diamond.simulate(
        problem,
        diamond.network.ring(problem.agents),
        make_method(name, batch),
        rounds_measured[-1],
        every=rounds_measured,
        measure="cheap",
        on_evaluation=lambda e: walls.setdefault(e["round"], time.perf_counter() - begun),
        progress=False,
        **options,
    )
    seconds = dict(zip(run.history["round"], run.history["seconds"]))
    pairs = itertools.pairwise(rounds_measured)
    spans = [(seconds[b] - seconds[a]) / (b - a) for a, b in pairs]
    losses = [float(v) for v in run.history["upper_loss"]]
    return {"first": walls[1], "ms": 1e3 * min(spans), "peak": peak_bytes(), "losses": losses}


def speed_row(options):
    """Measure one size and method, in this process."""
    import jax

    (size,), (name,) = options.sizes, options.methods
    kind, optimizer = METHODS[name]
    batch, rounds = (4, 3) if options.small else (BATCH, max(3, min(50, int(500 / size))))
    rounds = options.rounds or rounds
    begun = time.perf_counter()
    problem = make_problem(size, options)
    made = time.perf_counter() - begun
    more = {"precision": options.precision} if options.precision else {}
    plain = measure_plain(problem, optimizer, batch, rounds, **more)
    method = measure_method(problem, name, batch, rounds, **more)
    row = {
        "millions": round(problem.lower_size / 1e6, 2),
        "agents": problem.agents,
        "method": name,
        "kind": kind,
        "optimizer": optimizer,
        "precision": options.precision or "float32",
        "problem_s": round(made, 1),
        "first_round_s": round(method["first"], 1),
        "plain_first_s": round(plain["first"], 1),
        "ms": round(method["ms"], 2),
        "plain_ms": round(plain["ms"], 2),
        "time_ratio": round(method["ms"] / plain["ms"], 2),
        "peak_gb": round(method["peak"] / 1e9, 3),
        "plain_peak_gb": round(plain["peak"] / 1e9, 3),
        "memory_ratio": round(method["peak"] / plain["peak"], 2),
        "upper_loss": [round(v, 4) for v in method["losses"]],
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }
    print(json.dumps(row), flush=True)


def speed(options):
    sizes = options.sizes or ([0.02] if options.small else [s for s in SIZES if s >= 0.4])
    for size in sizes:
        for method in options.methods:
            extra = ["--agents", options.agents] if options.agents else []
            extra += ["--precision", options.precision] if options.precision else []
            spawn(options, "speed-row", "--sizes", size, "--methods", method, *extra)


def memory(options):
    """Write the memory that compiled rounds and steps of plain training need, without a run."""
    for size in options.sizes or ([0.02] if options.small else [0.4, 25.0]):
        problem = make_problem(size, options)
        batch = 4 if options.small else BATCH
        for name in options.methods:
            optimizer = METHODS[name][1]
            parallel, in_turn = (
                memory_of_plain(problem, optimizer, batch, in_turn) for in_turn in (False, True)
            )
            method, side_by_side = (
                memory_of_method(problem, name, batch, limit) for limit in ("least", None)
            )
            least = min(parallel, in_turn)
            row = {
                "millions": round(problem.lower_size / 1e6, 2),
                "agents": problem.agents,
                "method": name,
                "kind": METHODS[name][0],
                "optimizer": optimizer,
                "method_mb": round(method / 1e6, 1),
                "method_parallel_mb": round(side_by_side / 1e6, 1),
                "plain_parallel_mb": round(parallel / 1e6, 1),
                "plain_in_turn_mb": round(in_turn / 1e6, 1),
                "ratio": round(method / least, 2),
                "parallel_ratio": round(side_by_side / parallel, 2),
            }
            write(options, row)


def memory_of_plain(problem, optimizer, batch, in_turn):
    """Return the bytes of a step of plain training: arguments, results and temporaries."""
    import jax

    from diamond.hardware.device_memory import memory_need

    program, data, start = plain_program(problem, optimizer, batch, in_turn=in_turn)
    x = problem.start(0)[0]
    return sum(memory_need(program.lower(jax.eval_shape(start), data, 0, 1, x).compile()))


def memory_of_method(problem, name, batch, limit):
    """Return the bytes of a round of a method: arguments, results and temporaries.

    `limit` "least" is with one agent after another, None with all side by side.
    """
    import jax
    import numpy as np

    import diamond
    from diamond.core.sampling import key
    from diamond.engine.round_program import (
        donating_run_rounds,
        initial_progress,
        run_rounds_in_place,
    )
    from diamond.engine.single_device import SingleDevice
    from diamond.hardware.device_memory import memory_need
    from diamond.schedules.deferred import ResolutionContext, resolve

    network = diamond.network.ring(problem.agents)
    backend = SingleDevice(problem, network, batch, "blocks")
    context = ResolutionContext(problem, network, batch, 0)
    algorithm = resolve(make_method(name, batch), context).algorithm
    start = lambda x, y: initial_progress(algorithm, x, y, problem.agents)
    progress = jax.eval_shape(start, *problem.start(0))
    inputs = algorithm, backend.working, backend.mixing, key(0), progress, np.int32(1)
    program = run_rounds_in_place if limit == "least" else donating_run_rounds
    lowered = program.lower(*inputs, sampling="blocks", size=problem.agents)
    return sum(memory_need(lowered.compile()))
