"""Compilation of programs for the device in use, with suitable effort."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import cache
from typing import Any

import jax

from ..core.gc_control import gc_disabled

# Loops and branches become part of one CUDA graph, so no round waits for the host.
GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,COLLECTIVES,DYNAMIC_SLICE_FUSION"
ONE_GRAPH = {"xla_gpu_enable_command_buffer": f"{GRAPHS},WHILE,CONDITIONAL"}
# On one device, independent kernels run concurrently. Several devices, which wait for each other,
# run all kernels in one order.
ROUNDS = {"gpu": ONE_GRAPH | {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}}
ROUNDS_OF_SEVERAL = {"gpu": ONE_GRAPH}
# On a CPU: compiles much faster, for programs that are several times slower ...
BRIEF = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
# ... and somewhat faster, for programs of the same speed on small data.
PLAIN = {"xla_cpu_use_fusion_emitters": False}
# ... and in about half the time, for measures of the same speed on any data, up to rounding.
LIGHT: dict[str, Any] = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
# On a GPU: same speed, compiled in a quarter of the time.
MEASURES = {"gpu": {"xla_gpu_enable_triton_gemm": False}, "cpu": LIGHT}
# Sequential operations: handing small operations to other threads costs more than they do.
IN_TURN = {"xla_cpu_scheduler_type": 1}


class Compiled:
    """A function compiled by `jax.jit`, with options for the kind of device in use.

    `small`: on a CPU, arguments of up to this many bytes use the options `less`. `elsewhere`: such
    calls run on the CPU even beside an accelerator, and return numpy arrays.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static: tuple[str, ...],
        options: Mapping[str, Mapping[str, Any]],
        small: int,
        less: Mapping[str, Any],
        elsewhere: bool = False,
    ):
        self.function, self.static, self.options = function, static, options
        self.small, self.less, self.elsewhere = small, less, elsewhere
        self.programs: dict[Any, Any] = {}

    def kind(self, given: Any, named: Any) -> tuple[str, bool]:
        """Return the kind of device, and whether the arguments are small there."""
        leaves = jax.tree.leaves((given, named))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return "inside another program", False  # which has its own options
        kind = jax.default_backend()
        if kind != "cpu" and not (self.elsewhere and _processor() and _here(leaves)):
            return kind, False
        little = sum(getattr(leaf, "nbytes", 0) for leaf in leaves) <= self.small
        return ("cpu" if little else kind), little

    def program(self, kind: str, little: bool) -> Any:
        """Return the `jax.jit` program for this kind of device."""
        if (kind, little) not in self.programs:
            asked = os.environ.get("XLA_FLAGS", "")  # the user's flags take precedence
            usual = {n: v for n, v in self.options.get(kind, {}).items() if n not in asked}
            options = dict(self.less) if little else usual
            options = _known(**options) if options else options
            self.programs[kind, little] = jax.jit(
                self.function, static_argnames=self.static, compiler_options=options or None
            )
        return self.programs[kind, little]

    def __call__(self, *given: Any, **named: Any) -> Any:
        kind, little = self.kind(given, named)
        moved = kind == "cpu" != jax.default_backend()
        with gc_disabled(), jax.default_device(_processor()) if moved else nullcontext():
            given, named = _moved((given, named)) if moved else (given, named)
            found = self.program(kind, little)(*given, **named)
            return jax.device_get(found) if moved else found

    def lower(self, *given: Any, **named: Any) -> Any:
        """Lower the function for compilation; later calls reuse the compiled program."""
        with gc_disabled():
            return self.program(*self.kind(given, named)).lower(*given, **named)


def compiled(
    *static: str,
    options: Mapping[str, Mapping[str, Any]] = ROUNDS,
    small: int = 2**18,
    less: Mapping[str, Any] = PLAIN,
) -> Callable[[Callable[..., Any]], Compiled]:
    """Compile a long-running function; arguments named in `static` are part of the program."""
    return lambda function: Compiled(function, static, options, small, less)


def compile_fast(*static: str, small: int = 2**24) -> Callable[[Callable[..., Any]], Compiled]:
    """Compile a function that runs only a few times, as fast as possible.

    Compiling takes half a second or more for an accelerator, a tenth of that for the CPU.
    """
    return lambda function: Compiled(function, static, {}, small, BRIEF, elsewhere=True)


def compile_single_threaded(function: Callable[..., Any]) -> Any:
    """Compile a function of one agent that is called often: on a CPU, with a single thread."""
    options = _known(**IN_TURN) if jax.default_backend() == "cpu" else {}
    return jax.jit(function, compiler_options=options or None)


def at_once() -> None:
    """Run programs in the calling thread, on a CPU client that is not in use yet."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


@cache
def _known(**options: Any) -> dict[str, Any]:
    """Return the `options` that this JAX version knows; JAX rejects unknown options."""
    if options != BRIEF and options.keys() <= _known(**BRIEF).keys():
        return options  # checked once for both
    return (
        options
        if _taken(options)
        else {name: value for name, value in options.items() if _taken({name: value})}
    )


@cache
def _processor() -> Any:
    """Return the CPU device; None if JAX_PLATFORMS excludes it."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None


def _here(leaves: Iterable[Any]) -> bool:
    """Return whether all arrays are on devices of this process."""
    return all(a.is_fully_addressable for a in leaves if isinstance(a, jax.Array))


def _moved(arguments: Any) -> Any:
    """Return the arguments with their arrays on the CPU."""
    put = lambda a: jax.device_put(a, _processor()) if isinstance(a, jax.Array) else a
    return jax.tree.map(put, arguments)


def _taken(options: dict[str, Any]) -> bool:
    try:
        with jax.default_device(_processor()):
            jax.jit(lambda: 0, compiler_options=options)()
    except jax.errors.JaxRuntimeError:
        return False
    return True
