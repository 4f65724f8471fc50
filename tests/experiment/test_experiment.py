"""Experiment files: what they mean, and that every mistake in them is named at once."""

import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, without_optimizations
from tiny_experiment import TINY, RecordingListener, run_experiment, tiny
from typer.testing import CliRunner

import diamond
from diamond import cli, schedules
from diamond.config import schedule_text
from diamond.config.experiment_file import load, validate
from diamond.config.options import build_hypergradient
from diamond.config.validation_errors import BadExperiment
from diamond.experiment import jobs
from diamond.experiment.plans import (
    plan_comparison,
    plan_resume,
    plan_run,
    write_comparison_file,
)
from diamond.records.folder_reader import open_run, open_runs
from diamond.templates.experiment_template import write_experiment

MINE = """
import diamond

def make(agents: int = 3, noise=0.5, sizes: list[int] = [6, 6, 6]):
    return diamond.gallery.quadratic(agents, 2, 2, sizes, noise=noise)

def broken():
    return 7
"""
GOOD = """
rounds = 10
every = 5
network = "ring:3"
[problem]
kind = "mine.py:make"
[algorithm]
name = "diamond"
"""


def changed(*replacements):
    text = GOOD
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def toml(**keys):
    """GOOD with its first line followed by more keys."""
    more = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return more + GOOD


# Each file, and for each of its mistakes the key and words of the message.
BROKEN = {
    "not TOML": ("rounds = = 3", ["is not valid TOML", "line 1"]),
    "torn in a string": ('name = "a', ["is not valid TOML"]),
    "a key twice": (toml(rounds=3), ["is not valid TOML"]),
    "empty": ("", ["rounds: is missing", "problem: is missing", "network: is missing",
                   "algorithm: is missing"]),
    "a misspelt key": (changed(("rounds", "ronds")),
                       ["rounds: is missing", "ronds: is not a known key; did you mean rounds?"]),
    "unknown keys": (toml(sede=1, evry=3),
                     ["sede: is not a known key; did you mean seed?", "evry: is not a known key; "
                      "did you mean every?"]),
    "rounds as text": (changed(("rounds = 10", 'rounds = "10"')),
                       ["rounds: must be a whole number, not '10'"]),
    "half a round": (changed(("rounds = 10", "rounds = 10.5")),
                     ["rounds: must be a whole number, not 10.5"]),
    "negative rounds": (changed(("rounds = 10", "rounds = -1")),
                        ["rounds: must be at least 0, not -1"]),
    "no chunk": (changed(("every = 5", "every = 0")), ["every: must be at least 1, not 0"]),
    "bad seeds": (toml(seed='[0, "one", -2]'), ["seed[1]: must be a whole number, not 'one'",
                                                 "seed[2]: must be at least 0, not -2"]),
    "no seed": (toml(seed="[]"), ["seed: must be a list that is not empty"]),
    "a sampling": (toml(sampling='"block"'),
                   ["sampling: no sampling 'block'; did you mean blocks?"]),
    "a precision": (toml(precision='"float16"'), ["precision: no precision 'float16'"]),
    "a name": (toml(name='"a/b"'), ["name: must be letters, digits"]),
    "checkpoints": (toml(checkpoint_seconds="nan"),
                    ["checkpoint_seconds: must be a finite number"]),
    "no graph": (changed(('"ring:3"', '"rng:3"')), ["network: no graph 'rng'; did you mean ring?"]),
    "a graph of no size": (changed(('"ring:3"', '"ring"')), ["network.agents: is missing"]),
    "a graph with too much": (changed(('"ring:3"', '"ring:3,4,5"')),
                              ["network: 'ring:3,4,5' gives more numbers than ring takes"]),
    "an option of a graph": (changed(('"ring:3"', '"er:3,P=0.5,sede=1"')),
                             ["network.P: is no option of erdos_renyi; did you mean p?",
                              "network.sede: is no option of erdos_renyi; did you mean seed?"]),
    "a probability": (changed(('"ring:3"', '"er:3,p=1.5"')),
                      ["network: p is 1.5; an edge probability lies between 0 and 1"]),
    "a mixing rule": (changed(('"ring:3"', '"ring:3,mixing=metropolise"')),
                      ["network: no mixing rule 'metropolise'", "did you mean metropolis?"]),
    "a graph of tables": (changed(('"ring:3"', '[{graph = "ring"}, {grph = "ring"}, 5]')),
                          ["network[0].agents: is missing", "network[1].graph: is missing",
                           "network[2]: must be a name or a table"]),
    "unequal agents": (changed(('"ring:3"', '"ring:5"')),
                       ["network: ring(5) has 5 agents, the problem has 3; give both"]),
    "unequal agents in a list": (changed(('"ring:3"', '["ring:3", "star:4"]')),
                                 ["network[1]: star(4) has 4 agents, the problem has 3"]),
    "a problem": (changed(('"mine.py:make"', '"quadradic"')),
                  ["problem.kind: no problem 'quadradic'; did you mean quadratic?"]),
    "a file": (changed(("mine.py:make", "mein.py:make")),
               ["problem.kind: there is no file", "did you mean mine.py?"]),
    "a function": (changed(("mine.py:make", "mine.py:mkae")),
                   ["problem.kind: mine.py has no function 'mkae'; did you mean make?"]),
    "a file that cannot run": (changed(("mine.py:make", "torn.py:make")),
                               ["problem.kind: torn.py cannot be run: SyntaxError"]),
    "not a problem": (changed(("mine.py:make", "mine.py:broken")),
                      ["problem: mine.py:broken returned int; it must return a diamond.Problem"]),
    "options of a problem": (changed(('make"', 'make"\nagent = 3\nnoise = "loud"\nsizes = [1.5]')),
                             ["problem.agent: is no option of mine.py:make; did you mean agents?",
                              "problem.noise: must be a number, not 'loud'",
                              "problem.sizes: must be a list of whole numbers, not [1.5]"]),
    "rows that do not go round": (changed(('make"', 'make"\nsizes = [6, 6, 0]')), ["problem: "]),
    "a data set": (changed(('"mine.py:make"', '"meta_learning"\ndataset = "mnits"\nwidth = [3]\n'
                            'partition = {kind = "dirichlet", alpha = 0.3}')),
                   ["problem.dataset: no data set 'mnits' and no such file; did you mean mnist?",
                    "problem.width: is no option of meta_learning; did you mean widths?",
                    "problem.partition.alpha: is no option of the partition dirichlet",
                    "problem.partition.concentration: is missing"]),
    "an algorithm": (changed(('"diamond"', '"dimond"')),
                     ["algorithm.name: no algorithm 'dimond'; did you mean diamond?"]),
    "options of an algorithm": (changed(('"diamond"', '"diamond"\nalhpa = 0.1\nbeta = "fast"\n'
                                         'eta = true\nbatch = 1.5\nlabel = 3')),
                                ["algorithm.alhpa: is no option of diamond; did you mean alpha?",
                                 "algorithm.beta: no schedule 'fast'",
                                 "algorithm.eta: True is no schedule",
                                 "algorithm.batch: must be a whole number, not 1.5",
                                 "algorithm.label: must be text in quotes, not 3"]),
    "a schedule": (changed(('"diamond"', '"diamond"\nalpha = "power(c=1, omga=2)"\n'
                            'beta = "powr(1)"\neta = "power("\ngamma = "power"')),
                   ["algorithm.alpha: power has no 'omga'; did you mean omega?",
                    "algorithm.beta: no schedule 'powr'; did you mean power?",
                    "algorithm.eta: 'power(' is no schedule",
                    "algorithm.gamma: 'power' lacks its numbers"]),
    "a hypergradient": (changed(('"diamond"', '"diamond"\nhypergradient = {name = "neuman"}')),
                        ["algorithm.hypergradient.name: no hypergradient 'neuman'; did you mean "
                         "neumann?"]),
    "options of a hypergradient": (changed(('"diamond"', '"diamond"\nhypergradient = {name = '
                                            '"neumann", term = 3, lipschitz = "5"}')),
                                   ["hypergradient.term: is no option of neumann; did you mean",
                                    "hypergradient.lipschitz: must be a number, not '5'"]),
    "numbers that a hypergradient refuses": (changed(('"diamond"', '"diamond"\nhypergradient = '
                                                      '{name = "neumann", terms = 0}')),
                                             ["algorithm.hypergradient: terms = 0"]),
    "numbers that an algorithm refuses": (changed(('name = "diamond"', 'name = "svr_interact"\n'
                                                   'period = 0\nbach = 3')),
                                          ["algorithm: period = 0", "algorithm.bach: is no"]),
    "several algorithms": (changed(("[algorithm]", "[[algorithm]]\nname = 'dsg'\n[[algorithm]]")),
                           ["algorithm[0].name: no algorithm 'dsg'; did you mean dsgd?"]),
    "mistakes everywhere": ('rounds = -1\nevry = 1\nnetwork = "star"\nproblem = "digts"\n'
                            'algorithm = ["dsgd", "gtsgd"]\n',
                            ["rounds: must be at least 0", "evry: is not a known key; did you mean "
                             "every?", "network.agents: is missing", "problem.kind: no problem "
                             "'digts'", "algorithm[1].name: no algorithm 'gtsgd'; did you mean "
                             "gt_sgd?"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("experiments")
    (path / "mine.py").write_text(MINE)
    (path / "torn.py").write_text("def make(:\n")
    return path


def command(*words):
    from diamond.hardware import compilation_cache

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
        skip_loss_checks(patch)
        return CliRunner().invoke(cli.app, [str(w) for w in words], env={"NO_COLOR": "1"})


@pytest.mark.quick
@pytest.mark.parametrize("what", BROKEN)
def test_every_mistake_of_a_broken_file_is_named(folder, what):
    text, expected = BROKEN[what]
    path = folder / "broken.toml"
    path.write_text(text)
    found = command("check", path)
    assert found.exit_code == 2, found.output
    first, *mistakes = found.stderr.splitlines()
    assert first.startswith(f"{path}: {len(expected) if what in COUNTED else ''}"), first
    for words in expected:
        assert any(words in line for line in mistakes), (words, mistakes)
    assert "Traceback" not in found.output and "Error" not in first


# Files of which `expected` lists all mistakes, each with words of its own.
COUNTED = [w for w, (_, e) in BROKEN.items() if w not in ("not TOML", "a mixing rule", "a file")]


def test_there_are_enough_of_them():
    assert len(BROKEN) >= 40


@pytest.mark.quick
def test_the_resolved_file_is_the_same_experiment(folder):
    (folder / "good.toml").write_text(changed(("mine.py:make", "./mine.py:make")))
    experiment = load(folder / "good.toml", ["algorithm.alpha=power(0.3)", "seed=[0, 1]"])
    assert experiment.name == "good" and experiment.seed == [0, 1]
    elsewhere = folder / "runs" / "deep" / "here"
    text = experiment.to_toml(elsewhere)
    assert "../../../mine.py:make" in text and "batch = 64" in text and "power(0.3)" in text
    assert str(folder) not in text
    again = validate(tomllib.loads(text), elsewhere, "config.toml")
    assert again == experiment
    assert again.to_toml(elsewhere) == text
    assert again.algorithm[0].build() == experiment.algorithm[0].build()


def test_keys_are_set_in_every_table_of_a_list(folder):
    path = folder / "list.toml"
    path.write_text(GOOD.replace("[algorithm]\n", "[[algorithm]]\nname = 'dsgd'\n[[algorithm]]\n"))
    found = load(path, ["algorithm.batch=3", "network=star:3", "problem.noise=0"])
    assert [part.build().batch for part in found.algorithm] == [3, 3]
    assert found.network[0].build().name == "star(3)"
    assert found.problem.options["noise"] == 0
    names = load(path, ['algorithm=["gt-sgd"]', "algorithm.batch=7"])
    assert names.algorithm[0].build().batch == 7
    for change, message in (
        ("rounds", "write it as key=value"),
        ("rounds.x=1", "rounds is no table"),
    ):
        with pytest.raises(BadExperiment, match=message):
            load(path, [change])


@pytest.mark.parametrize("text, made", [
    (0.25, 0.25),
    ("power(0.3)", schedules.power(0.3)),
    ("power(0.3, omega=5, exponent=1/2)", schedules.power(0.3, 5, 0.5)),
    ("squared(0.1, power(1))", schedules.squared(0.1, schedules.power(1))),
    ("ramp(power(1), 25)", schedules.ramp(schedules.power(1), 25)),
    ("scaled(-2, 0.5)", schedules.scaled(-2, 0.5)),
    ({"name": "power", "c": 0.3}, schedules.power(0.3)),
    ({"name": "squared", "c": 2, "of": "power(1)"}, schedules.squared(2, schedules.power(1))),
])  # fmt: skip
@pytest.mark.quick
def test_schedules_are_spelled_and_read_back(text, made):
    assert schedule_text.parse(text) == made
    assert schedule_text.parse(schedule_text.format_schedule(made)) == made


def test_a_function_of_the_users_has_no_spelling():
    assert schedule_text.format_schedule(schedules.schedule(lambda t: 1 / (1 + t))) is None


@pytest.mark.parametrize("name", ["power(__import__('os'))", "().__class__", "1/0", "power(1)(2)"])
def test_a_schedule_is_no_program(name):
    with pytest.raises(ValueError, match=r"schedule|divides by 0|must be a number"):
        schedule_text.parse(name)


def test_hypergradients_by_name_and_by_table():
    assert build_hypergradient("exact") == diamond.hypergradient.exact()
    made = build_hypergradient({"name": "conjugate-gradient", "steps": 7})
    assert made == diamond.hypergradient.conjugate_gradient(7)


@pytest.mark.parametrize("text, name, agents", [
    ("er:9,p=0.3,seed=2", "erdos_renyi(9, p=0.3, seed=2)", 9),
    ("erdos_renyi:9,0.3", "erdos_renyi(9, p=0.3, seed=0)", 9),
    ("ring:5", "ring(5)", 5),
    ("torus:3x4", "torus(3, 4)", 12),
    ("grid:2,3", "grid(2, 3)", 6),
    ("hypercube:3", "hypercube(3)", 8),
    ("regular:8,degree=3", "regular(8, degree=3, seed=0)", 8),
    ({"graph": "geometric", "agents": 6, "radius": 0.9}, "geometric(6, radius=0.9, seed=0)", 6),
])  # fmt: skip
@pytest.mark.quick
def test_networks_by_text_and_by_table(text, name, agents):
    made = tiny(network=text).network[0].build()
    assert (made.name, made.agents) == (name, agents)


def test_a_data_set_is_dealt_out_as_the_file_says(monkeypatch):
    skip_loss_checks(monkeypatch)
    partition = {"kind": "by_label", "shards": 2}
    table = {"kind": "meta_learning", "dataset": "digits", "agents": 4, "rows": 400}
    part = tiny(problem=table | {"partition": partition, "widths": [5]}).problem
    made = part.build()
    assert made.agents == 4 and "classes" not in part.options
    total = sum(made.counts(name) for name in ("train", "valid", "test"))
    assert total.sum() == 400
    labels = [set(np.concatenate([made.rows[n][i]["b"] for n in made.rows])) for i in range(4)]
    assert all(len(own) <= 5 for own in labels)  # two runs of the rows sorted by label
    assert made.start(0)[1]["w"].shape == (5, 10)


def test_a_csv_file_with_sites_is_dealt_out_by_site(tmp_path, monkeypatch):
    skip_loss_checks(monkeypatch)
    rows = [f"{i % 2},{i / 7:.3f},{i % 5},{'abc'[i % 3]}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("ill,dose,age,clinic\n" + "\n".join(rows) + "\n")
    table = {"kind": "hyperparameter", "dataset": "rows.csv", "label": "ill", "site": "clinic"}
    experiment = validate(TINY | {"problem": table}, tmp_path, "x.toml")
    made = experiment.problem.build()
    assert made.agents == 3
    assert [int(sum(made.counts(n)[i] for n in made.rows)) for i in range(3)] == [20, 20, 20]


def test_runs_of_an_experiment_have_names_that_differ():
    algorithms = ["diamond", {"name": "diamond", "alpha": 0.3}, {"name": "dsgd", "label": "D SGD"}]
    found = tiny(algorithm=algorithms, network=["ring:3", "er:3,p=0.9"], seed=[0, 4])
    names = [job.name for job in jobs.expand_jobs(found)]
    assert len(set(names)) == len(names) == 12
    assert names[:2] == ["diamond-ring-3-seed0", "diamond-ring-3-seed4"]
    assert names[-1] == "D-SGD-er-3-p0.9-seed4"
    assert [job.name for job in jobs.expand_jobs(tiny())] == ["diamond"]


@pytest.mark.wide
def test_the_same_file_and_seed_are_the_same_numbers(tmp_path):
    with without_optimizations():
        first, second = (run_experiment(tiny(), tmp_path / name)["digest"] for name in "ab")
        other = run_experiment(tiny(seed=1), tmp_path / "c")["digest"]
        third = validate(tomllib.loads((tmp_path / "a" / "config.toml").read_text()), tmp_path, "")
        assert run_experiment(third, tmp_path / "d")["digest"] == first
    assert first == second != other
    assert open_run(tmp_path / "a").digest() == first


@pytest.mark.wide
def test_a_comparison_is_a_folder_of_runs_and_is_gone_on_with(tmp_path):
    experiment = tiny(seed=[0, 1], rounds=6)
    with without_optimizations():
        plan = plan_comparison(experiment, tmp_path, "tiny.toml")
        write_comparison_file(plan)
        stops = iter([False, False, False, True])
        with pytest.raises(KeyboardInterrupt):
            plan.execute(RecordingListener(), stopped=lambda: next(stops, False))
        assert [found.manifest["status"] for found in open_runs([plan.path])] == [
            "finished",
            "interrupted",
        ]
        done = plan_resume(plan.path).execute(RecordingListener())
        whole = plan_comparison(experiment, tmp_path, "tiny.toml")
        assert whole.path.name == "tiny-2"
        expected = whole.execute(RecordingListener())
    assert [m["digest"] for m in done] == [m["digest"] for m in expected]
    assert {m["name"] for m in done} == {"seed0", "seed1"}


def test_one_run_takes_one_of_each(tmp_path):
    with pytest.raises(BadExperiment) as found:
        plan_run(tiny(seed=[0, 1], algorithm=["diamond", "dsgd"]), tmp_path, "tiny.toml")
    assert [m.key for m in found.value.mistakes] == ["algorithm", "seed"]
    assert "use `diamond compare`" in found.value.mistakes[0].message


def test_a_new_experiment_is_two_files_that_overwrite_none(tmp_path):
    """They run as they are in `test_cli_experiments`."""
    paths = write_experiment(tmp_path, "first")
    assert [path.name for path in paths] == ["first.toml", "first.py"]
    with pytest.raises(FileExistsError, match="choose another name"):
        write_experiment(tmp_path, "first")
    with pytest.raises(BadExperiment, match="no name for a Python file"):
        write_experiment(tmp_path, "my-problem")


def test_a_forecast_tells_what_the_run_then_takes(tmp_path):
    with without_optimizations():
        plan = plan_run(tiny(rounds=300, every=150), tmp_path, "tiny.toml")
        (found,) = plan.forecasts().values()
        (manifest,) = plan.execute(RecordingListener())
    assert found.bytes == sum(sent for *_, sent in manifest["traffic"])
    drawn = np.mean(manifest["costs"]["samples"])
    assert abs(found.samples - drawn) < 0.2 * drawn  # the depth of eq. (5) is random
    assert found.compile_seconds > 0 and found.seconds > 0
    rows = sum(a.nbytes for part in plan.problem.rows.values() for a in jax.tree.leaves([*part]))
    assert rows < found.memory < 20 * rows


@pytest.mark.wide
def test_a_run_that_diverges_keeps_what_it_had(tmp_path):
    with without_optimizations():
        path = Path(tmp_path / "run")
        wild = TINY["algorithm"] | {"beta": 50.0, "alpha": 50.0}
        manifest = run_experiment(tiny(algorithm=wild, rounds=300), path)
        assert manifest["status"] == "diverged" and "diverged in round" in manifest["message"]
        lines = open_run(path).lines
        assert 1 <= len(lines) < 101 and lines[0]["round"] == 0
        plan_resume(path).execute(watch := RecordingListener())
    assert watch.messages == ["diverged"]  # it is over


@pytest.mark.wide
def test_a_run_that_ends_by_itself_is_saved_and_can_be_read(tmp_path):
    solving = tiny(algorithm={"name": "solve", "batch": 2}, rounds=400)
    with without_optimizations():
        manifest = run_experiment(solving, tmp_path / "a")
        run = diamond.load(tmp_path / "a")
    assert manifest["status"] == "finished" and 0 < run.rounds < 400
