"""Arrays that a function closes over, as arguments of its compiled program.

`jax.jit` writes such arrays into the program as constants: every program holds a copy, and large
ones make compilation slow. Frozen parameters of a network are the usual case. `HoistingProgram`
traces the function once, and compiles a program that takes the arrays as arguments.
"""

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun  # type: ignore[attr-defined, unused-ignore]
from jax.sharding import NamedSharding, PartitionSpec

HOISTED_BYTES = 2**16  # bytes of captured arrays from which a program takes the arrays as arguments
SMALLEST = 2**10  # bytes; a smaller array stays a constant, which XLA may fold

Replacements = Mapping[int, Any]  # traced values by the `id` of the captured array


def captured_arrays(program: Any) -> list[Any]:
    """Return the arrays that a traced program closes over, in its loops and branches too."""
    arrays = {id(a): a for a in _walk_constants(program) if getattr(a, "nbytes", 0) >= SMALLEST}
    return list(arrays.values())


def captured_bytes(program: Any) -> int:
    """Return the bytes of all captured arrays of a traced program."""
    return sum(array.nbytes for array in captured_arrays(program))


class HoistingProgram:
    """A program compiled by `jax.jit` whose captured arrays are arguments, not constants."""

    def __init__(
        self,
        function: Callable[..., Any],
        static: tuple[str, ...] = (),
        options: Mapping[str, Any] | None = None,
        donated: tuple[str, ...] = (),
    ):
        self.options = dict(options) if options else None
        self.static, self.donated = static, donated
        self.names = list(signature(function).parameters)
        self.tracer = jax.jit(function, static_argnames=static)
        # By the identity of the traced program, which the entry keeps alive.
        self.entries: dict[int, tuple[Any, list[Any], Any, Any]] = {}

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        program, values, structure = self._prepare(arguments, keywords)
        return jax.tree.unflatten(structure, program(*values))

    def lower(self, *arguments: Any, **keywords: Any) -> Any:
        """Lower the program for compilation; later calls reuse the compiled program."""
        program, values, _ = self._prepare(arguments, keywords)
        return program.lower(*values)

    def _prepare(self, arguments: Any, keywords: Any) -> tuple[Any, tuple[Any, ...], Any]:
        """Return the program for such arguments, its values, and the structure of its output.

        The values are the captured arrays, the leaves to keep and the leaves that are donated.
        """
        traced = self.tracer.trace(*arguments, **keywords)
        closed = traced.jaxpr
        leaves, is_donated = self._dynamic_leaves(arguments, keywords)
        if id(closed) not in self.entries:
            arrays = captured_arrays(closed)
            keys = [id(array) for array in arrays]

            def run(values: list[Any], retained: list[Any], donated: list[Any]) -> list[Any]:
                sources = iter(retained), iter(donated)
                inputs = [next(sources[donates]) for donates in is_donated]
                return _evaluate(closed, inputs, dict(zip(keys, values)))

            run.__name__ = str(getattr(self.tracer, "__name__", "run"))
            program = jax.jit(run, donate_argnums=2, compiler_options=self.options)
            structure = jax.tree.structure(traced.out_info)
            self.entries[id(closed)] = closed, _place(arrays, leaves), program, structure
        _, arrays, program, structure = self.entries[id(closed)]
        retained = [leaf for leaf, donates in zip(leaves, is_donated) if not donates]
        donated = [leaf for leaf, donates in zip(leaves, is_donated) if donates]
        return program, (arrays, retained, donated), structure

    def _dynamic_leaves(self, arguments: Any, keywords: Any) -> tuple[list[Any], list[bool]]:
        """Return the leaves of the arguments in the order of the trace, and which are donated."""
        by_name = [*zip(self.names, arguments), *sorted(keywords.items())]
        leaves: list[Any] = []
        is_donated: list[bool] = []
        for name, value in by_name:
            if name not in self.static:
                leaves += jax.tree.leaves(value)
                is_donated += [name in self.donated] * (len(leaves) - len(is_donated))
        return leaves, is_donated


def _place(arrays: Iterable[Any], leaves: Iterable[Any]) -> list[Any]:
    """Put the arrays once where the program runs: on all devices of its mesh, if it has one."""
    shardings = [a.sharding for a in leaves if isinstance(a, jax.Array)]
    meshes = [s.mesh for s in shardings if isinstance(s, NamedSharding) and s.mesh.size > 1]
    if meshes:
        place: Any = NamedSharding(meshes[0], PartitionSpec())
    else:
        place = jax.config.jax_default_device  # type: ignore[attr-defined, unused-ignore]
    if place is None:
        return [jnp.asarray(array) for array in arrays]
    return [jax.device_put(array, place) for array in arrays]


def _inner_programs(step: Any) -> list[Any]:
    """Return the programs inside a step: of a loop, a branch, a call."""
    values = [v for p in step.params.values() for v in (p if isinstance(p, tuple | list) else (p,))]
    return [v for v in values if hasattr(v, "eqns")]


def _walk_constants(program: Any) -> Iterable[Any]:
    """Yield the constants of a traced program and of the programs inside that can be changed."""
    yield from getattr(program, "consts", ())
    for step in program.eqns:
        if step.primitive.name in _REPLACEMENTS:
            for inner in _inner_programs(step):
                yield from _walk_constants(inner)


def _evaluate(program: Any, arguments: Iterable[Any], replacements: Replacements) -> list[Any]:
    """Evaluate a traced program with other values in place of its captured arrays."""
    jaxpr = program.jaxpr
    constants = [replacements.get(id(constant), constant) for constant in program.consts]
    if not any(_needs_replacement(step, replacements) for step in jaxpr.eqns):
        outputs: list[Any] = jaxpr_as_fun(ClosedJaxpr(jaxpr, constants))(*arguments)
        return outputs
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments)))
    read = lambda v: v.val if isinstance(v, Literal) else values[v]
    for step in jaxpr.eqns:
        inputs = [read(v) for v in step.invars]
        if _needs_replacement(step, replacements):
            results = _REPLACEMENTS[step.primitive.name](step.params, inputs, replacements)
        else:
            results = _run_step(jaxpr, step, inputs)
        values |= dict(zip(step.outvars, results))
    return [read(v) for v in jaxpr.outvars]


def _run_step(jaxpr: Any, step: Any, inputs: list[Any]) -> list[Any]:
    """Run one step as it is."""
    variables = {v: a for v, a in zip(step.invars, inputs) if not isinstance(v, Literal)}
    single = jaxpr.replace(constvars=[], invars=list(variables), outvars=step.outvars, eqns=[step])
    results: list[Any] = jaxpr_as_fun(ClosedJaxpr(single, ()))(*variables.values())
    return results


def _needs_replacement(step: Any, replacements: Replacements) -> bool:
    """Return whether a program inside a step has one of the captured arrays as a constant."""
    return step.primitive.name in _REPLACEMENTS and any(
        id(constant) in replacements
        for inner in _inner_programs(step)
        for constant in _walk_constants(inner)
    )


def _evaluate_while(params: Any, inputs: list[Any], replacements: Replacements) -> list[Any]:
    condition, body = params["cond_nconsts"], params["body_nconsts"]
    of_condition, of_body = inputs[:condition], inputs[condition : condition + body]
    results: list[Any] = jax.lax.while_loop(
        lambda carry: _evaluate(params["cond_jaxpr"], [*of_condition, *carry], replacements)[0],
        lambda carry: _evaluate(params["body_jaxpr"], [*of_body, *carry], replacements),
        inputs[condition + body :],
    )
    return results


def _evaluate_scan(params: Any, inputs: list[Any], replacements: Replacements) -> list[Any]:
    constants, carries = params["num_consts"], params["num_carry"]
    shared, start = inputs[:constants], inputs[constants : constants + carries]

    def body(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        results = _evaluate(params["jaxpr"], [*shared, *carry, *slices], replacements)
        return results[:carries], results[carries:]

    carry, stacked = jax.lax.scan(
        body,
        start,
        inputs[constants + carries :],
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carry, *stacked]


def _evaluate_cond(params: Any, inputs: list[Any], replacements: Replacements) -> list[Any]:
    branch = lambda program: lambda *arguments: _evaluate(program, arguments, replacements)
    results: list[Any] = jax.lax.switch(
        inputs[0], [branch(program) for program in params["branches"]], *inputs[1:]
    )
    return results


# Steps whose inner programs can be evaluated with other constants; constants elsewhere stay.
_REPLACEMENTS: dict[str, Callable[[Any, list[Any], Replacements], list[Any]]] = {
    "jit": lambda params, inputs, arrays: _evaluate(params["jaxpr"], inputs, arrays),
    "while": _evaluate_while,
    "scan": _evaluate_scan,
    "cond": _evaluate_cond,
}
