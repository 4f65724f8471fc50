"""Command line of the package: parse arguments, call the library, print the results.

To keep start-up short, commands import JAX in their bodies, never at module level.
"""

from . import (  # noqa: F401 (importing a module adds its commands)
    advise_command,
    bench_command,
    demo_command,
    experiment_commands,
    inspect_commands,
    net_change_command,
    net_commands,
    net_doctor_command,
    net_endorse_command,
    net_proof_command,
    net_relay_command,
    net_renew_command,
    net_request_commands,
    net_status_commands,
    predict_command,
    reproduce_command,
    result_commands,
    tune_command,
)
from .app import app

__all__ = ["app"]
