"""Readable errors for exceptions inside a loss: JAX names neither the loss nor the shapes."""

import traceback
from collections.abc import Callable
from pathlib import Path

import jax

from ..core.pytrees import Tree

PACKAGES = (str(Path(__file__).parents[1]), str(Path(jax.__file__).parent))
INSTALLED = str(Path(jax.__file__).parents[1])  # where the packages are that a loss calls
VALUE_NEEDED = (
    jax.errors.ConcretizationTypeError,  # `if`, `while`, `float`, `bool`, `range`
    jax.errors.TracerArrayConversionError,  # a numpy function
    jax.errors.TracerIntegerConversionError,
)


def explain_errors(name: str, loss: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Wrap a loss so that errors while tracing name the loss, the line and the shapes."""

    def explained(x: Tree, y: Tree, rows: Tree) -> jax.Array:
        try:
            return loss(x, y, rows)
        except VALUE_NEEDED as cause:
            raise TypeError(
                f"{name} asks for the value of an array{_place(cause)}, which a compiled loss does "
                f"not have: use jnp.where or jax.lax.cond in place of `if`, and jax.numpy in place "
                f"of numpy, `float` and `bool`{_torch_hint(cause)}"
            ) from cause
        except (TypeError, ValueError, LookupError) as cause:
            reason = str(cause).splitlines()[0] if str(cause) else ""
            raise ValueError(
                f"{name} cannot be evaluated{_place(cause)}: {type(cause).__name__}: {reason}; x "
                f"is {shapes(x)}, y is {shapes(y)}, rows are {shapes(rows)}: make the shapes and "
                f"types that init and the rows have fit the loss"
            ) from cause

    return explained


def shapes(tree: Tree) -> str:
    """Describe type and shape of every array: "float32[3]", "{'a': float32[8,2]}"."""
    plain = lambda a: _Plain(f"{a.dtype}[{','.join(map(str, a.shape))}]")
    return str(jax.tree.map(plain, tree))


class _Plain(str):
    """Text that prints without quotes inside a container."""

    __repr__ = str.__str__


def _torch_hint(cause: BaseException) -> str:
    """Return the remedy for the `forward` of a PyTorch module."""
    frames = traceback.extract_tb(cause.__traceback__)
    is_module = any("torchax" in Path(frame.filename).parts for frame in frames)
    return "; in a PyTorch module, torch.where and other functions of torch" * is_module


def _place(cause: BaseException) -> str:
    """Locate the error in the user's code: " in line 7 of losses.py, `if y[0] > 0:`"."""
    frames = traceback.extract_tb(cause.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith(PACKAGES)]
    user_frames = [frame for frame in outside if not frame.filename.startswith(INSTALLED)]
    if not outside:
        return ""
    last = (user_frames or outside)[-1]
    line = f", `{last.line}`" if last.line else ""
    return f" in line {last.lineno} of {Path(last.filename).name}{line}"
