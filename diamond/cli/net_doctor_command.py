"""The `net doctor` command: who dials on each edge of a site, and whether it works."""

import asyncio
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
    json: Json = False,
) -> None:
    """Test the connection to every neighbour of this site; say who dials, and why one fails."""
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
        from ..sites.transport.operator_queries import check_edges, operator_address
        from ..sites.transport.routes import describe_route
        from ..sites.transport.timeouts import Timeouts

        digests: dict[str, str] = {}
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
        results = asyncio.run(check_edges(site, digests, limits, own_place))
        if json:
            print_json(results)
        else:
            for neighbour in site.neighbours:
                who_dials = describe_route(site, neighbour)
                typer.echo(
                    f"{site.me.name} - {neighbour.name}: {results[neighbour.name]}; {who_dials}"
                )
        if any(result != "good" for result in results.values()):
            raise typer.Exit(FAILED)
