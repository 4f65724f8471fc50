"""Optimizers of optax for the variables of a composed method."""

import ast
from dataclasses import dataclass, field, replace
from typing import Any

from ...auto.adaptive_optimizers import Optimizer
from ...core import pytrees
from ...core.pytrees import Tree
from ...core.suggestions import did_you_mean
from .adaptive_steps import with_optimizer
from .composed import ComposedAlgorithm
from .variables import STATIC

EXAMPLE = 'give one such as optax.adamw(1e-3), or its text "adamw(1e-3)"'
DEPTH = 8  # of nested functions in the description of an optimizer


@pytrees.pytree
@dataclass(frozen=True)
class OptaxOptimizer(Optimizer):
    """A gradient transformation of optax, and its description, which `resume` compares."""

    transformation: Any = field(metadata=STATIC)
    text: str = field(metadata=STATIC)

    def init(self, parameters: Tree) -> Any:
        return self.transformation.init(parameters)

    def update(self, direction: Tree, state: Any, parameters: Tree) -> tuple[Tree, Any]:
        update: tuple[Tree, Any] = self.transformation.update(direction, state, parameters)
        return update


def with_optimizers(
    algorithm: ComposedAlgorithm, x: Any = None, y: Any = None, z: Any = None
) -> ComposedAlgorithm:
    """Return the method in which these variables move by optimizers of optax.

    The optimizer sees the direction of its variable as the gradient: for x of a tracked method the
    tracked direction, whose update is then mixed with the neighbours. Its state is part of the
    state of the method, so runs resume to the same bits. The optimizer replaces the step size; a
    run that rolls back continues with smaller updates. Only tracked variables have the same limit
    with an optimizer as without: with gossip each agent scales its own direction.

    Args:
        algorithm: a composed method, such as diamond.f2sa() or diamond.compose(...).
        x: optimizer of x: an optax.GradientTransformation such as optax.adam(1e-2), or a text such
            as "adamw(1e-3)" or "chain(clip_by_global_norm(1.0), sgd(cosine_decay_schedule(0.1,
            1000)))"; None leaves x as it is.
        y: optimizer of y.
        z: optimizer of z, for methods that have it.

    Returns:
        The method with these optimizers.

    Raises:
        ValueError: the method is not composed of parts, or has no such variable.
        TypeError: an optimizer is none of optax.
        ImportError: a text was given, and optax is not installed.

    Examples:
        >>> adam = diamond.with_optimizers(diamond.f2sa(), y="adamw(1e-3)", z="adamw(1e-3)")
    """
    if not isinstance(algorithm, ComposedAlgorithm):
        raise ValueError(
            f"{type(algorithm).__name__} is not composed of parts, so its variables take no "
            f"optimizers: use a method such as diamond.f2sa() or diamond.compose(...)"
        )
    given = {n: o for n, o in {"x": x, "y": y, "z": z}.items() if o is not None}
    if missing := [name for name in given if name not in algorithm.variables]:
        raise ValueError(
            f"this method has no {missing[0]}; its variables are {', '.join(algorithm.variables)}"
        )
    variables = {
        name: with_optimizer(algorithm.variables[name], make_optimizer(name, optimizer))
        for name, optimizer in given.items()
    }
    return replace(algorithm, **variables)


def make_optimizer(name: str, optimizer: Any) -> OptaxOptimizer:
    """Return the optimizer of the variable `name` from an object of optax or a text."""
    if isinstance(optimizer, str):
        text, optimizer = optimizer, parse_optimizer(optimizer)
    else:
        text = _describe(optimizer)
    if not (callable(getattr(optimizer, "init", None)) and hasattr(optimizer, "update")):
        raise TypeError(f"the optimizer of {name} is {optimizer!r}; {EXAMPLE}")
    return OptaxOptimizer(optimizer, text)


def parse_optimizer(text: str) -> Any:
    """Make the optimizer that `text` calls by functions of optax, with numbers as arguments.

    Raises ValueError if the text is anything else, ImportError if optax is not installed.
    """
    try:
        import optax
    except ImportError as error:
        raise ImportError(
            f"the optimizer {text!r} needs optax: pip install 'diamond-bilevel[optax]'"
        ) from error
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{text!r} is no optimizer; {EXAMPLE}") from None
    if not isinstance(body, ast.Call):
        raise ValueError(f"{text!r} is no call of an optimizer; {EXAMPLE}")
    return _evaluate(body, text, optax)


def _evaluate(node: ast.expr, text: str, optax: Any) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | bool | None):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, text, optax)
    if isinstance(node, ast.List | ast.Tuple):
        return [_evaluate(element, text, optax) for element in node.elts]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        names = [n for n in dir(optax) if not n.startswith("_") and callable(getattr(optax, n))]
        if node.func.id not in names:
            near = did_you_mean(node.func.id, names)
            raise ValueError(f"{text!r}: optax has no {node.func.id!r}; {near}")
        given = [_evaluate(argument, text, optax) for argument in node.args]
        named = {k.arg: _evaluate(k.value, text, optax) for k in node.keywords if k.arg}
        try:
            return getattr(optax, node.func.id)(*given, **named)
        except Exception as error:
            raise ValueError(f"{text!r}: {node.func.id} of optax: {error}") from None
    raise ValueError(f"{text!r} may only call functions of optax with numbers; {EXAMPLE}")


def _describe(value: Any, depth: int = DEPTH) -> str:
    """Describe an optimizer by the names and numbers in its functions, the same everywhere."""
    if depth == 0:
        return "..."
    if isinstance(value, tuple | list):
        return f"({', '.join(_describe(part, depth - 1) for part in value)})"
    if callable(value):
        cells = getattr(value, "__closure__", None) or ()
        contents = [cell.cell_contents for cell in cells if _is_filled(cell)]
        inner = [_describe(part, depth - 1) for part in contents if part is not value]
        name = getattr(value, "__qualname__", type(value).__name__)
        return f"{name}[{', '.join(inner)}]" if inner else name
    if isinstance(value, int | float | str | bool | None):
        return repr(value)
    return type(value).__name__


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
