"""Run every verb of the installed command once, in an empty folder.

The verbs are those of the installed command itself. A verb that is not exercised here, or that is
exercised here but no longer exists, is an error. Usage: python try_wheel.py FOLDER, by the Python
of the environment that has the wheel.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import typer
from try_wheel_files import FEDERATION, SITE, TABLES

import diamond
from diamond.cli import app

COMMAND = [str(Path(sys.prefix) / "bin" / "diamond")]
LIMIT = 300  # seconds for one command, on a busy machine too
EXPERIMENT = """
rounds = 20
every = 10
network = "ring:3"
problem = {kind = "quadratic", agents = 3, upper = 2, lower = 2, rows = 6}
[algorithm]
name = "diamond"
batch = 2
steps = {alpha = 0.05, beta = 0.2, eta = 0.3, gamma = 0.3}
hypergradient = {name = "neumann", terms = 3}
"""
SUITE = """
methods = ["dsgd"]
settings = 2
seeds = 1
tuning_seeds = 1
[[cases]]
name = "small"
problem = {kind = "quadratic", agents = 3, upper = 2, lower = 2, rows = 6}
network = "ring:3"
rounds = 20
batch = 2
"""

exercised: set[str] = set()
printing = threading.Lock()


def list_verbs(command, prefix=""):
    """List the verbs of a command, those of its groups as `group verb`."""
    children = getattr(command, "commands", None)
    if children is None:
        return {prefix}
    return set().union(*(list_verbs(c, f"{prefix} {n}".strip()) for n, c in children.items()))


def record_verb(words):
    """Record that a verb is exercised."""
    verb = " ".join(words[:2]) if words[0] == "net" else words[0]
    exercised.add(verb)


def run(*words, code=0, output_part=""):
    """Run a command to its end; check its exit code and a part of its output."""
    record_verb(words)
    started = time.monotonic()
    process = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=LIMIT)
    output = process.stdout + process.stderr
    with printing:
        print(f"{time.monotonic() - started:5.1f} s  diamond {' '.join(words)}", flush=True)
    if process.returncode != code or output_part not in " ".join(output.split()):
        expected = f"exit code {code}" + f" and {output_part!r}" * bool(output_part)
        sys.exit(
            f"diamond {' '.join(words)}: exit code {process.returncode}, not {expected}\n{output}"
        )


def start(*words):
    """Start a command that runs until it is stopped."""
    record_verb(words)
    with printing:
        print(f"         diamond {' '.join(words)}", flush=True)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # A job in the background ignores Ctrl-C, and so would its children.
    return subprocess.Popen([*COMMAND, *words], preexec_fn=allow_interrupt, **options)


def allow_interrupt():
    """Let this process be interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process, codes=(0,)):
    """Wait for a started command and check its exit code."""
    output, _ = process.communicate(timeout=LIMIT)
    if process.returncode not in codes:
        sys.exit(f"exit code {process.returncode} of {' '.join(process.args)}\n{output}")


def wait_for_listener(port):
    """Wait until something listens on a port of this machine."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"nothing listens on port {port}")


def free_ports(count):
    """List ports of this machine that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def try_experiments():
    """Exercise the verbs that write, run and show experiments."""
    Path("tiny.toml").write_text(EXPERIMENT)
    run("new", "mine")
    run("check", "tiny.toml")
    run("run", "tiny.toml")
    run("compare", "tiny.toml", "--set", "seed=[0, 1]")
    run("resume", "runs/tiny")
    run("tune", "tiny.toml", "--set", "algorithm.steps.alpha=[0.02, 0.05]", "--seeds", "1")
    run("advise", "tiny.toml", "--pilot", "10", "--algorithm", "dsgd")
    run("list")
    run("show", "runs/tiny")
    run("export", "runs/tiny")
    run("report", "runs/tiny", "--figures", "figures")
    try_prediction()
    run("list", "algorithms")
    try_live()


def try_prediction():
    """Run an experiment on tables, and predict new rows by the model of one site."""
    for name, shift in (("north", 0), ("south", 1)):
        rows = [f"{i % 5},{'FM'[i % 2]},{i % 5 + shift}" for i in range(20)]
        Path(f"{name}.csv").write_text("\n".join(["age,sex,days", *rows]) + "\n")
    Path("tables.toml").write_text(TABLES)
    run("run", "tables.toml")
    run("predict", "runs/tables", "north.csv", "--site", "north", output_part="20 rows")


def try_live():
    """Read the page that `diamond live` serves, and interrupt the command."""
    process = start("live", "runs/tiny")
    address = process.stdout.readline().split()[0]
    with urllib.request.urlopen(address, timeout=LIMIT) as answer:
        if b"<html" not in answer.read():
            sys.exit(f"no page at {address}")
    process.send_signal(signal.SIGINT)
    finish(process, (0, 130))


def try_others():
    """Exercise the verbs that need no run, and those of sites."""
    run("network", "ring:6")
    run("data", "digits", "--agents", "4")
    # The data sets of the paper are not in the package: the command has to say so.
    run("reproduce", "fig1", "--quick", code=2, output_part="DIAMOND_OFFLINE forbids the download")
    try_sites()
    Path("suite.toml").write_text(SUITE)
    run("bench", "suite.toml", "--processes", "1")
    run("demo")


def try_sites():
    """Create two sites, query, stop and restart one, and run both to the end."""
    *ports, hub_port = free_ports(3)
    names = [f'{name} = "127.0.0.1:{port}"' for name, port in zip(("north", "south"), ports)]
    names.append(f'[relays]\nhub = "127.0.0.1:{hub_port}"')
    Path("trial.toml").write_text(FEDERATION + "\n".join(names))
    Path("site.py").write_text(SITE)
    run("net", "init", "trial.toml")
    run("net", "renew", "trial")
    requests = [f"own/{name}/{name}.csr" for name in ("north", "south")]
    for name in ("north", "south"):
        run("net", "request", f"own/{name}", "--site", name)
    run("net", "sign", "trial.toml", *requests, "--out", "signed")
    stewards = [word for path in requests for word in ("--steward", path)]
    run("net", "init", "trial.toml", "--out", "shared", *stewards)
    key = "own/north/request.key"
    run("net", "endorse", "shared", "--key", key, output_part="1 of 2 signatures")
    run("net", "proof", "trial.toml", "trial", code=1, output_part="proves nothing")
    hub = start("net", "relay", "trial/hub")
    wait_for_listener(hub_port)
    hub.send_signal(signal.SIGINT)
    finish(hub)
    problem = "--problem", "site.py:make", "--give-up", str(LIMIT)
    north = start("net", "start", "trial/north", *problem)
    wait_for_listener(ports[0])
    run("net", "doctor", "trial/south")
    run("net", "status", "trial/north")
    run("net", "stop", "trial/north")
    finish(north, (0, 130))
    both = [start("net", "start", f"trial/{name}", *problem) for name in ("north", "south")]
    for process in both:
        finish(process)
    run("net", "change", "trial", "trial.toml", "--from-round", "1")


def main(folder):
    """Exercise all verbs, and compare them with those of the installed command."""
    os.chdir(folder)
    module_path = Path(diamond.__file__).resolve()
    if any(folder.iterdir()) or not module_path.is_relative_to(Path(sys.prefix).resolve()):
        sys.exit(f"{folder} is not empty, or {module_path} is not that of the wheel")
    os.environ["DIAMOND_OFFLINE"] = "1"
    with ThreadPoolExecutor(2) as pool:
        for lane in [pool.submit(try_experiments), pool.submit(try_others)]:
            lane.result()
    verbs = list_verbs(typer.main.get_command(app))
    for verb in sorted(verbs - exercised):
        print(f"diamond {verb} is not exercised: add it to {__file__}", file=sys.stderr)
    for verb in sorted(exercised - verbs):
        print(f"there is no diamond {verb}: remove it from {__file__}", file=sys.stderr)
    sys.exit(verbs != exercised)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
