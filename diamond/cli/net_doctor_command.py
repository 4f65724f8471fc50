"""The `net doctor` command: a site's machine, who dials on each edge, and whether it works."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..metrics.display import print_message
from .app import FAILED, Json, print_json
from .net_commands import net
from .net_site_setup import (
    BundleFolder,
    ConnectSeconds,
    DataFile,
    OwnAddress,
    RunsFolder,
    build_problem,
    load_site,
    report_site_errors,
    site_problem,
)


@net.command()
def doctor(
    bundle: BundleFolder,
    problem: Annotated[
        str | None,
        typer.Option(
            "--problem",
            help="Problem to compare with the neighbours'. Default: `problem` in the federation's "
            "file.",
        ),
    ] = None,
    data: DataFile = None,
    connect: ConnectSeconds = 5.0,
    listen: OwnAddress = None,
    out: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Test this machine and the path to every neighbour: one line for each cause of a failure."""
    with report_site_errors(), load_site(bundle) as (site, federation):
        from ..hardware.device_memory import format_bytes
        from ..network.comparison_paths import describe_comparison
        from ..network.liars import describe_defense
        from ..network.mask_limits import describe_masks
        from ..privacy.private_runs import describe_noise
        from ..sites.identity.handshake import compute_digests
        from ..sites.rounds.resource_estimate import estimate_resources
        from ..sites.rounds.round_deadline import describe_policy
        from ..sites.rounds.site_agent import Agent
        from ..sites.transport.operator_queries import operator_address
        from ..sites.transport.path_checks import GOOD, check_machine, check_paths
        from ..sites.transport.routes import describe_route
        from ..sites.transport.timeouts import Timeouts

        digests: dict[str, str] = {}
        estimates = (0, 0)
        if problem or federation.problem:
            problem_built = build_problem(
                site_problem(problem, data, site, federation), site.me.name
            )
            agent = Agent(
                problem_built,
                federation.build_network(),
                federation.algorithm.build(),
                site.me.number,
                seed=federation.seed,
                sampling=federation.sampling,
                missing=federation.missing,
            )
            policy = describe_policy(federation.missing, federation.deadline, federation.signed)
            digests = compute_digests(agent, federation.rounds, policy)
            estimates = estimate_resources(agent, federation.every, federation.missing)
            if noise := describe_noise(agent.algorithm, problem_built):
                print_message(noise)
            disk, memory = map(format_bytes, estimates)
            print_message(
                f"messages and checkpoints take at most {disk} of disk and {memory} of memory"
            )
        print_message(describe_defense(federation.build_network()))
        if federation.signed:
            members = site.roster.members
            neighbours = [member.neighbours for member in members]
            print_message(describe_comparison(neighbours, [member.name for member in members]))
        print_message(describe_masks(federation.build_network()))
        limits, own_place = Timeouts(connect, 1.5 * connect), operator_address(bundle, site, listen)
        report = asyncio.run(check_paths(site, digests, limits, own_place))
        report.machine |= check_machine(out / federation.name / site.me.name, *estimates)
        if json:
            print_json(asdict(report))
        else:
            for neighbour in site.neighbours:
                who_dials = describe_route(site, neighbour)
                typer.echo(
                    f"{site.me.name} - {neighbour.name}: {report.edges[neighbour.name]}; "
                    f"{who_dials}"
                )
            for relay, result in report.relays.items():
                typer.echo(f"relay {relay}: {result}")
            good = [name for name, result in report.machine.items() if result == GOOD]
            typer.echo(f"{', '.join(good)}: {GOOD}")
            for name, result in report.machine.items():
                if result != GOOD:
                    typer.echo(f"{name}: {result}")
        if not report.is_good:
            raise typer.Exit(FAILED)
