"""Run the steps of deploy/Dockerfile without Docker, in a clean folder, and two sites of the image.

The folder takes the place of the image's root. COPY, RUN, ENV, ENTRYPOINT and CMD are those of the
file; FROM is the Python that runs this script, and USER is the one who does. Needs a package index.
The base image must be named by its digest, and keys and rows beside site.py must not be copied.
"""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from try_wheel_files import FEDERATION, SITE

HERE = Path(__file__).resolve().parents[1]
LIMIT = 900  # seconds for one step
ROOTS = ("/site", "/runs", "/cache", "/bundle", "/rows")


def instructions():
    """Return (name, arguments) of each line of the Dockerfile."""
    lines = (HERE / "deploy" / "Dockerfile").read_text().splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]


def check_base(steps):
    """Exit unless every FROM names an image by digest, or an argument whose default does."""
    arguments = dict(text.split("=", 1) for name, text in steps if name == "ARG")
    for image in (text for name, text in steps if name == "FROM"):
        variable = re.fullmatch(r"\$\{(\w+)\}", image)
        image = arguments.get(variable[1], "") if variable else image
        if not re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", image):
            sys.exit(f"FROM {image}: name the base image by its digest")


def relocate(text, root):
    """Replace the folders of the image by those below `root`."""
    for name in ROOTS:
        for before in (" ", '"', "=", "(ls "):
            text = text.replace(f"{before}{name}", f"{before}{root}{name}")
    return text


def build_wheel(context):
    """Put the wheel and the problem where the build of the image finds them."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("diamond", "pyproject.toml", "README.md", "LICENSE"):
            copy = shutil.copytree if (HERE / name).is_dir() else shutil.copy
            copy(HERE / name, Path(folder) / name)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        subprocess.run([*command, "--wheel-dir", context, folder], check=True, timeout=LIMIT)
    (context / "site.py").write_text(SITE)
    for name in ("bundle/agent.key", "rows/rows.npz"):  # as in the folder of an operator
        (context / name).parent.mkdir()
        (context / name).write_text("secret")


def build_image(root, context):
    """Run the steps; return the environment and the command of the image."""
    environment, entry, command = dict(os.environ), [], []
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    environment["PIP_NO_COMPILE"] = (
        "0"  # pip reads 0 as yes: what is used is compiled at its import
    )
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    check_base(instructions())
    for name, arguments in instructions():
        arguments = relocate(f" {arguments}", root).strip()
        if name == "COPY":
            *patterns, target = arguments.split()
            Path(target).mkdir(parents=True, exist_ok=True)
            for source in (path for pattern in patterns for path in context.glob(pattern)):
                shutil.copy(source, target)
        elif name == "RUN":
            if os.geteuid():
                arguments = arguments.split(" && chown")[0]
            print(f"RUN {arguments}", flush=True)
            subprocess.run(
                ["sh", "-euc", arguments], check=True, env=environment, timeout=LIMIT, cwd=root
            )
        elif name == "ENV":
            environment |= dict(word.split("=", 1) for word in shlex.split(arguments))
        elif name == "ENTRYPOINT":
            entry = json.loads(arguments)
        elif name == "CMD":
            command = json.loads(arguments)
        elif name not in ("ARG", "FROM", "WORKDIR", "USER", "STOPSIGNAL"):
            sys.exit(f"this script does not know the step {name}: add it")
    if secrets := [*root.rglob("agent.key"), *root.rglob("rows.npz")]:
        sys.exit(f"the image contains {secrets[0].name}")
    return environment, entry, command


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run_federation(root, environment, entry, command):
    """Two containers' commands to the end: one listens, the other dials it."""
    port = free_port()
    sites = f'north = "127.0.0.1:{port}"\nsouth = ""\n'
    (root / "trial.toml").write_text(FEDERATION + sites)
    subprocess.run(
        [*entry, "init", root / "trial.toml", "--out", root / "trial"],
        check=True,
        env=environment,
        timeout=LIMIT,
    )
    processes = []
    for site in ("north", "south"):
        words = " ".join(command).replace(f"{root}/bundle", f"{root}/trial/{site}")
        words = words.replace(f" --data {root}/rows/rows.npz", "")
        listen = f"127.0.0.1:{port}" if site == "north" else "127.0.0.1:0"
        words = words.replace("0.0.0.0:7101", listen)
        processes.append(subprocess.Popen([*entry, *words.split()], env=environment, cwd=root))
    try:
        codes = [process.wait(LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    ends = [root / "runs" / "trial" / site / "metrics.jsonl" for site in ("north", "south")]
    if codes != [0, 0] or not all(path.exists() for path in ends):
        sys.exit(f"the sites of the image ended with {codes}")
    print("both sites of the image have finished", flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        root, context = Path(folder) / "root", Path(folder) / "context"
        root.mkdir(), context.mkdir()
        build_wheel(context)
        run_federation(root, *build_image(root, context))


if __name__ == "__main__":
    main()
