"""JAX's persistent compilation cache, for commands: a second start need not compile."""

import os
from pathlib import Path


def compile_cache() -> None:
    """Keep compiled programs in the user's cache, unless JAX was told where to keep them."""
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(root) / "diamond" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
