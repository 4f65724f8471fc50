"""Programs compiled for the kind of device at hand."""

from collections.abc import Callable
from typing import Any

import jax

# Loops and branches become part of one CUDA graph: no round asks the host whether to go on.
GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,COLLECTIVES,DYNAMIC_SLICE_FUSION"
OPTIONS = {"gpu": {"xla_gpu_enable_command_buffer": f"{GRAPHS},WHILE,CONDITIONAL"}}


class Compiled:
    """A function as `jax.jit` compiles it, with the options for the kind of device in use."""

    def __init__(self, function: Callable[..., Any], static: tuple[str, ...]):
        self.function, self.static = function, static
        self.programs: dict[str, Any] = {}

    @property
    def program(self) -> Any:
        """What `jax.jit` makes of it here."""
        kind = jax.default_backend()
        if kind not in self.programs:
            options = OPTIONS.get(kind)
            self.programs[kind] = jax.jit(
                self.function, static_argnames=self.static, compiler_options=options
            )
        return self.programs[kind]

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.program(*given, **named)

    def lower(self, *given: Any, **named: Any) -> Any:
        """On its way to be compiled; a call finds what was compiled of it."""
        return self.program.lower(*given, **named)


def compiled(*static: str) -> Callable[[Callable[..., Any]], Compiled]:
    """Compile a function; the arguments named `static` are part of the program."""
    return lambda function: Compiled(function, static)
