"""Compilation of programs for the device in use, with suitable effort."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any

import jax

from ..core.gc_control import gc_disabled
from .captured_arrays import HoistingProgram, captured_bytes

# Loops and branches become part of one CUDA graph, so no round waits for the host.
GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,COLLECTIVES,DYNAMIC_SLICE_FUSION"
ONE_GRAPH = {"xla_gpu_enable_command_buffer": f"{GRAPHS},WHILE,CONDITIONAL"}
# On one device, independent kernels run concurrently. Several devices, which wait for each other,
# run all kernels in one order.
ROUND_OPTIONS = {"gpu": ONE_GRAPH | {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}}
MULTI_DEVICE_ROUND_OPTIONS = {"gpu": ONE_GRAPH}
# On a CPU: compiles much faster, for programs that are several times slower ...
FAST_COMPILE_OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
# ... and up to three times faster, for rounds of the same speed on small data and measures of the
# same speed on any data, up to rounding.
LIGHT_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
}
# On a GPU: same speed, compiled in a quarter of the time.
MEASURE_OPTIONS = {"gpu": {"xla_gpu_enable_triton_gemm": False}, "cpu": LIGHT_OPTIONS}
# The same without trying products out: for programs that run once or a few times.
FEW_RUNS_OPTIONS = {"gpu": MEASURE_OPTIONS["gpu"] | {"xla_gpu_autotune_level": 0}}
# Sequential operations: handing small operations to other threads costs more than they do.
SINGLE_THREAD_OPTIONS = {"xla_cpu_scheduler_type": 1}


_optimizes: ContextVar[bool] = ContextVar("optimizes", default=False)


@contextmanager
def optimized_compilation(is_large: bool) -> Iterator[None]:
    """Inside the context, `compile_fast` optimizes and stays on the device, if y `is_large`."""
    token = _optimizes.set(is_large or _optimizes.get())
    try:
        yield
    finally:
        _optimizes.reset(token)


class CompiledFunction:
    """A function compiled by `jax.jit`, with options for the kind of device in use.

    `small`: on a CPU, arguments of up to this many bytes use `small_options`.
    `on_cpu_if_small`: such calls run on the CPU even beside an accelerator, and return numpy
    arrays.

    An argument with an attribute `captured_bytes` above 0 says that the function will close over
    large arrays, which become arguments of the program.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static: tuple[str, ...],
        options: Mapping[str, Mapping[str, Any]],
        small: int,
        *,
        small_options: Mapping[str, Any],
        on_cpu_if_small: bool = False,
        donated: tuple[str, ...] = (),
    ):
        self.function, self.static, self.options = function, static, options
        self.small, self.small_options, self.on_cpu_if_small = small, small_options, on_cpu_if_small
        self.donated = donated  # arguments whose arrays the program may overwrite
        self.programs: dict[Any, Any] = {}
        self.hoisting_programs: dict[Any, Any] = {}
        self.captured = 0  # bytes of arrays that the function itself closes over

    def captured_bytes(self, *arguments: Any) -> int:
        """Trace the function, and return the bytes of the arrays that it closes over."""
        return captured_bytes(self.program(*self.kind(arguments, {})).trace(*arguments).jaxpr)

    def captured_by(self, arguments: Any, keywords: Any) -> int:
        """Return the bytes of the arrays that the function closes over with such arguments."""
        values = (*arguments, *keywords.values())
        return self.captured + sum(getattr(value, "captured_bytes", 0) for value in values)

    def kind(self, arguments: Any, keywords: Any) -> tuple[str, bool]:
        """Return the kind of device, and whether the arguments are small there."""
        leaves = jax.tree.leaves((arguments, keywords))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return "inside another program", False  # which has its own options
        kind = jax.default_backend()
        if self.on_cpu_if_small and _optimizes.get():
            return kind, False
        if kind != "cpu" and not (self.on_cpu_if_small and _cpu_device() and _is_local(leaves)):
            return kind, False
        size = sum(getattr(leaf, "nbytes", 0) for leaf in leaves)
        is_small = size + self.captured_by(arguments, keywords) <= self.small
        return ("cpu" if is_small else kind), is_small

    def program(self, kind: str, is_small: bool, hoists: bool = False) -> Any:
        """Return the `jax.jit` program for this kind of device.

        `hoists`: arrays that the function closes over are arguments of the program.
        """
        programs = self.hoisting_programs if hoists else self.programs
        if (kind, is_small) not in programs:
            user_flags = os.environ.get("XLA_FLAGS", "")  # the user's flags take precedence
            options = self.small_options if is_small else self.options.get(kind, {})
            options = {n: v for n, v in options.items() if n not in user_flags}
            options = _supported_options(**options) if options else options
            programs[kind, is_small] = (
                HoistingProgram(self.function, self.static, options, self.donated)
                if hoists
                else jax.jit(
                    self.function,
                    static_argnames=self.static,
                    donate_argnames=self.donated,
                    compiler_options=options or None,
                )
            )
        return programs[kind, is_small]

    def _hoists(self, kind: str, arguments: Any, keywords: Any) -> bool:
        """Return whether captured arrays become arguments, unless an outer program does that."""
        return kind != "inside another program" and self.captured_by(arguments, keywords) > 0

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        kind, is_small = self.kind(arguments, keywords)
        moves_to_cpu = kind == "cpu" != jax.default_backend()
        with gc_disabled(), jax.default_device(_cpu_device()) if moves_to_cpu else nullcontext():
            arguments, keywords = (
                _to_cpu((arguments, keywords)) if moves_to_cpu else (arguments, keywords)
            )
            program = self.program(kind, is_small, self._hoists(kind, arguments, keywords))
            result = program(*arguments, **keywords)
            return jax.device_get(result) if moves_to_cpu else result

    def lower(self, *arguments: Any, **keywords: Any) -> Any:
        """Lower the function for compilation; later calls reuse the compiled program."""
        with gc_disabled():
            kind, is_small = self.kind(arguments, keywords)
            program = self.program(kind, is_small, self._hoists(kind, arguments, keywords))
            return program.lower(*arguments, **keywords)


def compile_program(
    *static: str,
    options: Mapping[str, Mapping[str, Any]] = ROUND_OPTIONS,
    small: int = 2**18,
    small_options: Mapping[str, Any] = LIGHT_OPTIONS,
    donated: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], CompiledFunction]:
    """Compile a long-running function; arguments named in `static` are part of the program.

    The program may overwrite the arrays of the arguments named in `donated`, which are deleted.
    """
    return lambda function: CompiledFunction(
        function, static, options, small, small_options=small_options, donated=donated
    )


def compile_fast(
    *static: str, small: int = 2**24
) -> Callable[[Callable[..., Any]], CompiledFunction]:
    """Compile a function that runs only a few times, as fast as possible.

    Compiling takes half a second or more for an accelerator, a tenth of that for the CPU.
    """
    return lambda function: CompiledFunction(
        function,
        static,
        FEW_RUNS_OPTIONS,
        small,
        small_options=FAST_COMPILE_OPTIONS,
        on_cpu_if_small=True,
    )


def compile_single_threaded(function: Callable[..., Any], hoists: bool = False) -> Any:
    """Compile a function of one agent that is called often: on a CPU, with a single thread.

    `hoists`: arrays that the function closes over are arguments of the program.
    """
    options = _supported_options(**SINGLE_THREAD_OPTIONS) if jax.default_backend() == "cpu" else {}
    if hoists:
        return HoistingProgram(function, options=options)
    return jax.jit(function, compiler_options=options or None)


def run_inline() -> None:
    """Run programs in the calling thread, on a CPU client that is not in use yet."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


@cache
def _supported_options(**options: Any) -> dict[str, Any]:
    """Return the `options` that this JAX version knows; JAX rejects unknown options."""
    if (
        options != FAST_COMPILE_OPTIONS
        and options.keys() <= _supported_options(**FAST_COMPILE_OPTIONS).keys()
    ):
        return options  # checked once for both
    return (
        options
        if _is_supported(options)
        else {name: value for name, value in options.items() if _is_supported({name: value})}
    )


@cache
def _cpu_device() -> Any:
    """Return the CPU device; None if JAX_PLATFORMS excludes it."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None


def _is_local(leaves: Iterable[Any]) -> bool:
    """Return whether all arrays are on devices of this process."""
    return all(a.is_fully_addressable for a in leaves if isinstance(a, jax.Array))


def _to_cpu(arguments: Any) -> Any:
    """Return the arguments with their arrays on the CPU."""
    move = lambda a: jax.device_put(a, _cpu_device()) if isinstance(a, jax.Array) else a
    return jax.tree.map(move, arguments)


def _is_supported(options: dict[str, Any]) -> bool:
    try:
        with jax.default_device(_cpu_device()):
            jax.jit(lambda: 0, compiler_options=options)()
    except jax.errors.JaxRuntimeError:
        return False
    return True
