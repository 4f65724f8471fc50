"""The commands `net init` and `net start`: sites that run without a server."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..metrics.display import print_message
from .app import Json, app, print_json
from .experiment_commands import Quiet
from .json_log import JsonLog, json_log
from .net_site_setup import (
    BundleFolder,
    ConnectSeconds,
    DataFile,
    build_problem,
    compute_digest,
    load_site,
    lock_bundle,
    private_files,
    report_site_errors,
    site_problem,
)

if TYPE_CHECKING:
    from ..config.federation_file import Federation
    from ..sites.identity.stewards import Stewards as StewardKeys

net = typer.Typer(
    no_args_is_help=True, help="Run several sites together over mutual TLS, without a server."
)
app.add_typer(net, name="net")

NewFolder = Annotated[
    Path | None,
    typer.Option("--out", help="Folder to create. Default: the name of the federation."),
]
ProblemFunction = Annotated[
    str | None,
    typer.Option(
        "--problem",
        help="Your problem, as in my_problem.py:make. Default: `problem` in the federation's file.",
    ),
]
AnswerSeconds = Annotated[
    float, typer.Option("--round", help="Seconds to wait for a neighbour's answer.")
]
ListenAddress = Annotated[
    str | None, typer.Option(help="Address to listen at, HOST:PORT. Default: the roster's address.")
]
Restart = Annotated[
    bool,
    typer.Option("--restart", help="Move the existing run aside and start again from round 0."),
]
FromLastPoints = Annotated[
    bool,
    typer.Option(
        "--onward",
        help="Start a new run from the sites' last points; one site may have lost its point.",
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port on this machine that serves metrics to Prometheus. Default: none.",
    ),
]
ShareLoss = Annotated[
    bool,
    typer.Option(
        "--share-loss", help="Show the local loss to all sites in `diamond net status --all`."
    ),
]
Stewards = Annotated[
    list[Path] | None,
    typer.Option(
        "--steward",
        help="Request of a steward, whose signature rosters need beside others'; one option each.",
    ),
]
Threshold = Annotated[
    int, typer.Option(help="Signatures of stewards that a roster needs. Default: a majority.")
]
GiveUpSeconds = Annotated[
    float, typer.Option(help="Seconds without any message after which the site stops.")
]


@net.command()
def init(
    file: Annotated[Path, typer.Argument(help="TOML file of the federation.")],
    out: NewFolder = None,
    steward: Stewards = None,
    threshold: Threshold = 0,
    json: Json = False,
) -> None:
    """Create a federation: its certificate authority, and one bundle for each site."""
    with report_site_errors():
        from ..sites.identity.certificate_authority import create_federation

        federation = load_federation(file, out)
        folder, chosen = out or Path(federation.name), chosen_stewards(steward, threshold)
        bundles = create_federation(
            folder,
            federation.name,
            federation.sites,
            federation.build_network(),
            federation.terms(),
            federation.relays,
            authorities=federation.read_authorities(file.parent),
            subjects=federation.site_subjects(),
            stewards=chosen,
        )
    secrets = (
        f"the keys of all sites were made here, and who has {folder} can act as any site: copy "
        f"each folder to its site over a secure channel, and keep {folder}/ca.key here. Sites that "
        f"keep their keys to themselves begin with  diamond net request"
    )
    function = "" if federation.problem else " --problem my_problem.py:make"
    names_files = bool({"dataset", "train"} & {*(federation.problem or {})})
    data = "" if names_files else " --data FILE"
    start = f"then, at each site:  diamond net start BUNDLE{function}{data}"
    signatures = chosen.threshold if chosen else 0
    print_bundles(federation, folder, bundles, [secrets, start], json, signatures)


def print_bundles(
    federation: "Federation",
    folder: Path,
    bundles: Mapping[str, Path],
    next_steps: Iterable[str],
    json: bool,
    threshold: int,
) -> None:
    """Print the bundles of a new federation, and what to do with them."""
    if json:
        return print_json({site: str(path) for site, path in bundles.items()})
    for site, path in bundles.items():
        typer.echo(f"{site}: {path}")
    print_own_authorities(federation)
    print_missing_signatures(threshold, folder)
    for step in next_steps:
        print_message(step)
    for relay in federation.relays:
        if relay not in federation.sites:
            print_message(f"at {relay}, which gets no keys:  diamond net relay {folder / relay}")


def chosen_stewards(requests: list[Path] | None, threshold: int) -> "StewardKeys | None":
    """Return the stewards whose requests are in these files; None if there are none."""
    if not requests:
        return None
    from ..sites.identity.private_keys import read_request
    from ..sites.identity.stewards import choose_stewards

    keys = [read_request(path).public_key for path in requests]
    return choose_stewards(keys, threshold or len(keys) // 2 + 1)


def print_missing_signatures(stewards: int, folder: Path) -> None:
    """Print that so many stewards must sign the roster in a folder, if there are any."""
    if stewards:
        print_message(
            f"{stewards} stewards must sign this roster before it is copied:  diamond net endorse "
            f"{folder} --key KEY"
        )


def print_own_authorities(federation: "Federation") -> None:
    """Print what sites with certificates of their own authorities do."""
    for site, (authority, name) in federation.site_subjects().items():
        print_message(
            f"{site}: put agent.pem, a certificate of {authority} for {name}, and agent.key beside "
            f"the files of its folder"
        )


def load_federation(file: Path, out: Path | None) -> "Federation":
    """Load the federation in a file; its mistakes are reported with that of the folder."""
    from ..config.federation_file import load
    from ..config.validation_errors import BadExperiment, Mistake

    try:
        return load(file)
    except BadExperiment as error:
        is_taken = out is not None and out.is_dir() and any(out.iterdir())
        more = [Mistake("--out", f"{out} is not empty; name a new folder")] if is_taken else []
        raise BadExperiment(error.source, [*error.mistakes, *more]) from None


@net.command()
def start(
    bundle: BundleFolder,
    problem: ProblemFunction = None,
    data: DataFile = None,
    out: Annotated[
        Path, typer.Option(help="Folder in which the folder of the run is created.")
    ] = Path("runs"),
    connect: ConnectSeconds = 10.0,
    answer: AnswerSeconds = 120.0,
    give_up: GiveUpSeconds = 24 * 3600.0,
    listen: ListenAddress = None,
    restart: Restart = False,
    onward: FromLastPoints = False,
    metrics: MetricsPort = None,
    share_loss: ShareLoss = False,
    quiet: Quiet = False,
    log_as_json: JsonLog = False,
    json: Json = False,
) -> None:
    """Start or continue this site's part of the run; wait for the neighbours."""
    if restart and onward:
        raise typer.BadParameter(
            "--restart starts from round 0, --onward from the sites' last points; give one of "
            "them, the same at all sites"
        )
    with (
        json_log(log_as_json) as log,
        report_site_errors(),
        load_site(bundle) as (site, federation),
        lock_bundle(bundle, federation),
    ):
        from ..config.federation_file import build_roster_network, origin
        from ..engine.site_run import SiteSettings, run
        from ..hardware.compiler import run_inline
        from ..privacy.ledger import check_earlier_run
        from ..privacy.private_runs import describe_noise
        from ..records.folder_recovery import unused_path
        from ..records.write_check import check_writable
        from ..sites.memory.sent_record import forget_run, record_path
        from ..sites.rounds.warm_restart import prepare_folder
        from ..sites.transport.timeouts import Timeouts
        from .net_progress import show_site_progress

        run_inline()
        log.site = site.me.name
        folder = out / federation.name / site.me.name
        check_writable(folder)
        if restart or onward:
            with private_files():
                forget_run(record_path(bundle, folder))
        if restart and folder.exists():
            old_folder = unused_path(folder)
            folder.rename(old_folder)
            print_message(
                f"the earlier run is now in {old_folder}; the run starts again once all sites are "
                f"started with --restart"
            )
        elif onward:
            if federation.privacy is not None:
                check_earlier_run(bundle, folder)
            with private_files():
                earlier_folder = prepare_folder(folder)
            note = f"the earlier run is now in {earlier_folder}; " if earlier_folder else ""
            print_message(
                f"{note}a new run starts from the sites' last points once all sites use --onward"
            )
        place = f"at {site.me.address}" if site.me.address else "which dials its neighbours"
        description = f"{site.me.name} (agent {site.me.number}) {place}"
        names = {member.number: member.name for member in site.neighbours}
        print_message(f"{description}; neighbours {', '.join(names.values())}; folder {folder}")
        component = site_problem(problem, data, site, federation)
        command = f"diamond net start {bundle}" + f" --problem {problem}" * bool(problem)
        command += f" --data {data}" * bool(data)
        problem_built = build_problem(component, site.me.name)
        algorithm = federation.algorithm.build()
        if noise := describe_noise(algorithm, problem_built):
            print_message(noise)
        display = show_site_progress(names, federation.rounds, quiet, as_lines=log_as_json)
        with private_files(), display as watch:
            final = run(
                problem_built,
                federation.build_network(),
                algorithm,
                SiteSettings(
                    rounds=federation.rounds,
                    seed=federation.seed,
                    sampling=federation.sampling,
                    missing=federation.missing,
                    deadline=federation.deadline,
                    signed=federation.signed,
                    every=federation.every,
                    limits=Timeouts(connect, answer, give_up),
                    listen=listen,
                    metrics=metrics,
                    measure=federation.measure,
                    share_loss=share_loss,
                ),
                bundle=bundle,
                folder=folder,
                listener=watch,
                origin=origin(federation, site.me.name, component, command),
                config=federation.to_toml(),
                build_network=build_roster_network,
            )
        x = compute_digest(final.state.x)
        if json:
            print_json({"site": site.me.name, "round": final.t, "folder": str(folder), "x": x})
        else:
            has_finished = final.t == federation.rounds or final.has_ended
            end = "finished" if has_finished else "left the federation"
            typer.echo(f"{end}: round {final.t}, state in {folder}, sha256 of x {x}")
