"""Every script of benchmarks/ and examples/ runs, with its smallest setting."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = sorted(path for path in (ROOT / "benchmarks").glob("*.py"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SMALLEST = {  # by script; OUT is an empty folder
    "all_suites": "quick --folder OUT --seeds 1 --minutes 0.05 --processes 2",
    "auto": "--groups ridge --rounds 20 --limit 60",
    "channels": "--small",
    "churn": "--rounds 12 --join 4 --leave 8 --kill 4 --every 2",
    "common": "--rounds 10 --seeds 1",
    "compare_methods": "OUT/comparison.svg",
    "cores": "--cores --agents 2",
    "digits_grid": "--small",
    "estimators": "--small",
    "faults": "--repeats 1 --kinds cut --phases transfer",
    "fuzz_frames": "1000",
    "gallery": "compare quadratic --seeds 1 --out OUT/compare.json",
    "grpc_transport": "--smoke",
    "implicit": "--small",
    "inverses": "--small",
    "k_free": "--small",
    "kernels": "1",
    "large": "memory --sizes 0.02 --methods f2sa_fused",
    "leaderboard": "--to OUT",
    "liars": "2",
    "masked_sums": "--sites 3 --size 4000 --rounds 4 --repeats 1 --only bytes",
    "navigation": "OUT --small",
    "own_method": "",
    "peers": "2 --sizes 4000",
    "peers_processor": "4000",
    "privacy": "--table",
    "rate_study": "--quick",
    "run_folders": "--small",
    "scale": "--only K --largest 1",
    "signed": "--sites 3 --repeats 1 --sizes 4000",
    "soak": "2000 --calm",
    "solve": "--seeds 1 quadratic",
    "solve_in_ten_lines": "",
    "solve_new_problems": "--small",
    "speed": "--small",
    "start": "readme",
    "stragglers": "--sites 3 --rounds 6 --work 0.01 --slowness 3",
    "torch_bridge": "--small",
    "variants": "1 --small",
    "written_out": "--rounds 5",
}
NOT_RUN = {
    "gpu": "measures a GPU",
    "links": "draws runs that reach a target, which short runs do not",
    "make_digits": "writes a file of the package",
    "peers_floor": "started by peers.py, with keys of a federation",
}


def is_script(path):
    return "__main__" in path.read_text("utf-8") or path.parent.name == "examples"


def test_every_script_has_a_smallest_setting():
    scripts = {path.stem for path in (*BENCHMARKS, *EXAMPLES) if is_script(path)}
    assert scripts == SMALLEST.keys() | NOT_RUN.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_the_script_runs(name, tmp_path):
    if name == "torch_bridge":
        pytest.importorskip("torchax", reason="the extra `torch` is not installed")
    if name == "grpc_transport":
        pytest.importorskip("grpc", reason="gRPC is not installed: `pip install grpcio`")
    (script,) = [path for path in (*BENCHMARKS, *EXAMPLES) if path.stem == name]
    arguments = SMALLEST[name].replace("OUT", str(tmp_path)).split()
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"}
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:]


def test_the_targets_of_solve_are_those_of_every_suite():
    """Of each file of results, not of the last one."""
    import runpy

    from diamond.bench.suites import SUITES

    targets = runpy.run_path(str(ROOT / "benchmarks" / "solve.py"))["tuned_results"]()
    cases = {case.name for suite in SUITES.values() for case in suite.cases}
    assert {"quadratic", "ridge"} <= targets.keys() <= cases


def test_the_soak_tells_a_leak_from_a_file_that_is_written():
    import runpy

    is_steady = runpy.run_path(str(ROOT / "benchmarks" / "soak.py"))["is_steady"]
    memory = 380.0
    written = [(15 if i in (13, 17) else 14, memory) for i in range(20)]
    assert is_steady(written) and is_steady([*written[:-2], (5, memory), (5, memory)])
    assert not is_steady([(14 + i // 9, memory) for i in range(20)])
    assert not is_steady([(14, memory * (1.06 if i > 15 else 1.0)) for i in range(20)])
    assert is_steady([]) and is_steady([(14, memory), (15, 2 * memory)])  # too few to judge
