"""Work on a thread of its own, while messages travel."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import jax

Work = Callable[..., Awaitable[Any]]  # runs a blocking function


async def threaded(function: Callable[..., Any], *given: Any) -> Any:
    """function(*given) on a thread, in the precision of this one: JAX keeps it for each thread."""
    wide = jax.config.jax_enable_x64  # type: ignore[attr-defined]

    def work() -> Any:
        with jax.enable_x64(wide):
            return function(*given)

    return await asyncio.to_thread(work)
