"""A PyTorch module as a pytree of parameters and a JAX function of them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import host_transfer
from .label_guard import label_guard
from .output_check import warn_if_different
from .torch_versions import import_torch, import_torchax

Params = dict[str, jax.Array]


def functional(module: Any) -> tuple[Params, Callable[..., Any]]:
    """Split a module into its trainable parameters and a JAX function.

    The function can be differentiated twice, compiled and mapped over agents. Parameters without
    `requires_grad` and buffers stay as they are: large ones are arguments of the compiled program,
    not constants in it, so a base model with LoRA needs nothing special. The module itself is not
    changed. At its first call, the function is compared with the module on random inputs of the
    same shapes; a difference is warned of.

    Args:
        module: a `torch.nn.Module` in eval mode, or without batch normalization and dropout.

    Returns:
        `params`, the parameters with `requires_grad` by their names, a pytree for x or y; and
        `apply(params, *inputs, **options)`, the output of the module with its tensors as arrays.

    Raises:
        ValueError: batch normalization or dropout is active, or no parameter has `requires_grad`.
        ImportError: torch or torchax is missing or of another version.
    """
    torch = import_torch()
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"functional takes a torch.nn.Module, not {type(module).__name__}")
    import_torchax()
    check_mode(module)
    parameters = dict(module.named_parameters())
    params = {name: to_jax(p) for name, p in parameters.items() if p.requires_grad}
    frozen = {name: to_jax(p) for name, p in parameters.items() if not p.requires_grad}
    frozen |= {name: to_jax(buffer) for name, buffer in module.named_buffers()}
    if not params:
        raise ValueError(
            f"no parameter of the {type(module).__name__} has requires_grad, so there is nothing "
            f"to solve for: call module.requires_grad_(True), or set it for the layers to train"
        )
    name = type(module).__name__

    def apply(params: Mapping[str, Any], *inputs: Any, **options: Any) -> Any:
        check_mode(module)  # which may have changed since
        missing = set(params) ^ names
        if missing:
            raise ValueError(
                f"the parameters given to the {name} differ from those of "
                f"functional(module) in {sorted(missing)[0]!r}: give the pytree that functional "
                f"returned, or one of its structure"
            )
        if not checked:
            checked.append(True)
            own = lambda *inputs, **options: _call(name, call, initial, *inputs, **options)
            original = lambda *inputs, **options: _plain(module(*inputs, **options))
            dtype = next(iter(initial.values())).dtype
            warn_if_different(name, own, original, _arrays((inputs, options)), dtype=dtype)
        return _call(name, call, {**frozen, **params}, *inputs, **options)

    def call(params: Mapping[str, Any], *inputs: Any, **options: Any) -> Any:
        return torch.func.functional_call(module, params, inputs, options)

    names, initial, checked = set(params), {**frozen, **params}, []  # type: set[str], Params, list[bool]
    return params, apply


def function(torch_function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function of tensors, such as `torch.nn.functional.cross_entropy`, into one of arrays.

    Args:
        torch_function: a function of tensors. It must not change its arguments in place, and its
            Python control flow must not depend on the values of tensors.

    Returns:
        The same function of JAX arrays.
    """
    import_torchax()
    name = getattr(torch_function, "__name__", type(torch_function).__name__)
    return lambda *inputs, **options: _call(name, torch_function, *inputs, **options)


def state_dict(
    tree: Mapping[str, Any], agent: int | None = 0, module: Any = None
) -> dict[str, Any]:
    """Return parameters of a run as tensors, for `module.load_state_dict`.

    Args:
        tree: parameters with the agents along the first axis, such as `run.y` or `run.x`.
        agent: the agent whose parameters are returned; None if `tree` has no axis of agents.
        module: the module of the run; its frozen parameters and buffers, such as the statistics of
            batch normalization, are then part of the result. A run does not hold them.

    Returns:
        A tensor by the name of each parameter; without `module`, load it with `strict=False`.

    Raises:
        ValueError: no such agent, or parameters whose shapes are not those of `module`.
    """
    torch = import_torch()
    if not isinstance(tree, Mapping) or any(isinstance(v, Mapping) for v in tree.values()):
        raise TypeError(
            f"state_dict takes the parameters of one module, a dict of arrays by name as "
            f"functional(module) returns it, not {type(tree).__name__} with other containers in "
            f"it: select the part that belongs to the module"
        )
    agents = min((np.shape(a)[0] if np.ndim(a) else 0 for a in tree.values()), default=0)
    if agent is not None and not 0 <= agent < agents:
        raise ValueError(
            f"no agent {agent}: the parameters have {agents} along their first axis; give an agent "
            f"below {agents}, or agent=None for parameters of one module"
        )
    select = lambda a: np.array(a if agent is None else a[agent])
    trained = {name: torch.from_numpy(select(np.asarray(a))) for name, a in tree.items()}
    if module is None:
        return trained
    complete = {name: value.detach().clone() for name, value in module.state_dict().items()}
    for name, value in trained.items():
        if name not in complete or complete[name].shape != value.shape:
            expected = tuple(complete[name].shape) if name in complete else "absent"
            raise ValueError(
                f"{name} is {tuple(value.shape)} here and {expected} in the module: give the "
                f"module of the run, and agent=None if the parameters have no axis of agents"
            )
    return complete | trained


def to_jax(tensor: Any) -> jax.Array:
    """Copy a tensor into a JAX array."""
    return jnp.array(host_transfer.without_tensors(tensor), copy=True)


def check_mode(module: Any) -> None:
    """Reject a module whose output is random or depends on the other rows of the batch."""
    torch = import_torch()
    for name, part in module.named_modules():
        if not part.training:
            continue
        place = f"{type(part).__name__}{f' {name!r}' if name else ''}"
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"{place} is in training mode, in which its output depends on the other rows of "
                f"the batch: call module.eval() first, which uses the stored statistics, or use "
                f"GroupNorm or LayerNorm"
            )
        if dropout := _dropout_probability(part):
            raise ValueError(
                f"{place} is in training mode with dropout {dropout}, so the output would be "
                f"random: call module.eval() first, or set the probability to 0"
            )


def _dropout_probability(part: Any) -> float:
    """Return the largest probability of dropout among the numbers of one submodule."""
    torch = import_torch()
    numbers = [part.p] if isinstance(part, torch.nn.modules.dropout._DropoutNd) else []
    numbers += [value for name, value in vars(part).items() if "dropout" in name]
    return max((float(n) for n in numbers if isinstance(n, int | float)), default=0.0)


def _call(name: str, torch_function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Call a function of tensors with arrays; it must not draw random numbers.

    A compiled program would draw the same numbers in every round.
    """
    torchax = import_torchax()
    environment = torchax.default_env()
    inputs, options = torchax.interop.torch_view(_arrays((inputs, options)))
    random_key = environment.prng_key
    with environment, label_guard(), environment.override_property(prng=random_key):
        try:
            output = torch_function(*inputs, **options)
        except jax.errors.JaxRuntimeError:  # such as too little memory
            raise
        except (RuntimeError, AssertionError) as cause:  # of torch, over shapes and types
            reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
            raise ValueError(f"{name}: {reason}") from cause
        if environment.prng_key is not random_key:
            raise ValueError(
                f"{name} draws random numbers, as by dropout in training mode, so its output would "
                f"be random: call module.eval() first, or pass random numbers as an input"
            )
    return torchax.interop.jax_view(_plain(output))


def _arrays(inputs: Any) -> Any:
    """Return numpy arrays and tensors among the inputs as JAX arrays; options stay as they are."""
    inputs = host_transfer.without_tensors(inputs)
    return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, inputs)


def _plain(output: Any) -> Any:
    """Return the output of a module as containers that JAX knows: `ModelOutput` as a dict."""
    if isinstance(output, Mapping):
        return {name: _plain(value) for name, value in output.items()}
    if isinstance(output, tuple | list) and not hasattr(output, "_fields"):
        return type(output)(map(_plain, output))
    return output
