"""The paper's experiments on a few made-up rows: memory, tuning, tables, saved_figures."""

import io
import itertools
import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import saved_figures
from fast_compilation import skip_divergence_diagnosis, skip_loss_checks, without_optimizations
from rich.console import Console
from typer.testing import CliRunner

from diamond import cli
from diamond.hardware import compilation_cache
from diamond.reproduce import paper_case, paper_commands, paper_figures
from diamond.reproduce import paper_case as cases
from diamond.reproduce import paper_tuning as tuning
from diamond.reproduce.paper_case import ExperimentScale, PaperCase
from diamond.reproduce.paper_methods import METHODS, MOMENTUM
from diamond.tuning import trial_cache

CASE = PaperCase("mnist", 9, "label")
SCALE = ExperimentScale("tiny", rounds=6, every=2, seeds=2, rows=None)
SETTINGS = [((0.3, 1.0, 3.0), 0), ((0.3, 1.0, 3.0), 1), ((1.0, 0.3, 1.0), 0)]
STORED = json.loads(
    resources.files("diamond.reproduce").joinpath(tuning.CONSTANTS_FILE).read_text()
)
# Nine agents with eight training rows each bend more than MNIST does: L_g is too small for them.
pytestmark = pytest.mark.filterwarnings(
    "ignore:mini-batch Hessians", "ignore:y. is known", "ignore:y. cannot be found"
)


def rows(dataset, folder):
    random = np.random.default_rng(1)
    features = random.normal(size=(180, 12))
    return features, random.integers(0, 2 if dataset == "a9a" else 10, 180)


@pytest.fixture(scope="module", autouse=True)
def small():
    """180 rows of noise stand for every data set, and compile once."""
    with pytest.MonkeyPatch.context() as patch, without_optimizations():
        cases._build_problem.cache_clear()
        patch.setattr(cases, "_load_rows", rows)
        skip_loss_checks(patch)
        skip_divergence_diagnosis(patch)
        yield
    cases._build_problem.cache_clear()


@pytest.fixture
def called(monkeypatch):
    """How many trials were run, not remembered."""
    calls, real = [], trial_cache.simulate_many

    def counted(*inputs, **options):
        calls.extend(seed for _, seed in inputs[2])
        return real(*inputs, **options)

    monkeypatch.setattr(trial_cache, "simulate_many", counted)
    return calls


def run(memory, settings=SETTINGS, on_trial=lambda n: None, **options):
    return paper_case.run_trials(CASE, SCALE, "D-SGD", settings, memory, None, on_trial, **options)


def without_time(trial):
    history = {k: v for k, v in trial["history"].items() if k != "seconds"}
    return {k: v for k, v in trial.items() if k != "wall"} | {"history": history}


# The cases


@pytest.mark.quick
@pytest.mark.parametrize("dataset", ["mnist", "a9a"])
@pytest.mark.parametrize("count", [None, 90])
def test_every_row_is_dealt_once(dataset, count):
    scale = ExperimentScale("tiny", 6, 2, 2, count)
    problem = PaperCase(dataset, 5, "iid").problem(scale, None)
    parts = {
        part: np.concatenate([r["a"] for r in problem.rows[part]])
        for part in ("train", "valid", "test")
    }
    dealt = np.concatenate(list(parts.values()))
    assert len(np.unique(dealt, axis=0)) == len(dealt) == (count or 180)
    expected = {row.tobytes() for row in rows(dataset, None)[0]}
    assert {row.tobytes() for row in dealt} <= expected
    shares = [len(part) / len(dealt) for part in parts.values()]
    np.testing.assert_allclose(shares, cases.SPLIT_SHARES, atol=0.03)
    assert PaperCase(dataset, 5, "iid").problem(scale, None) is problem
    assert ("test_loss" in problem.metrics) == (dataset == "a9a")


def test_agents_by_label_have_few_labels_and_others_most():
    labels = lambda kind: [
        len(np.unique(np.concatenate([p.rows[part][i]["b"] for part in p.rows])))
        for p in [PaperCase("mnist", 5, kind).problem(SCALE, None)]
        for i in range(5)
    ]
    assert max(labels("label")) <= 4 and min(labels("iid")) >= 8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("frozen", [False, True])
def test_methods_follow_the_papers_schedules(method, frozen):
    algorithm = CASE.algorithm(method, (2.0, 0.5, 0.1), frozen)
    t = 7
    alpha = 2 * (2 + t) ** (-1 / 3)
    expected = {"alpha": 0.0 if frozen else alpha, "beta": 0.5 * alpha}
    if method in MOMENTUM:
        before = 2 * (2 + t - 1) ** (-1 / 3)
        expected |= dict.fromkeys(("eta", "gamma"), 0.1 * before**2)
    values = {name: float(value) for name, value in algorithm.schedule_values(t).items()}
    assert values == pytest.approx(expected, rel=1e-12)
    assert algorithm.batch == 32


def test_the_description_tells_cases_and_scales_apart():
    every = [
        (PaperCase("mnist", m, kind, p), ExperimentScale("any", rounds, 2, 2, count))
        for m, kind, p, rounds, count in itertools.product(
            (9, 15), ("iid", "label"), (0.3, 0.5), (6, 8), (None, 90)
        )
    ]
    assert len({json.dumps(c.describe(s)) for c, s in every}) == len(every) == 32
    renamed = ExperimentScale(
        "other", 6, 2, 99, None
    )  # neither the name nor how many seeds change a trial
    assert CASE.describe(renamed) == CASE.describe(SCALE)


# The trials


@pytest.mark.wide
def test_trials_are_remembered(tmp_path, called):
    counts = []
    first = run(tmp_path, on_trial=counts.append)
    assert called == [0, 1, 0] and counts == [0, 1, 1, 1]
    assert [(tuple(t["constants"]), t["seed"]) for t in first] == SETTINGS
    assert first[0]["history"]["round"] == [0, 2, 4, 6]
    again = run(tmp_path, on_trial=counts.append)
    assert again == first and len(called) == 3 and counts[4:] == [3]
    mixed = run(tmp_path, [SETTINGS[2], ((0.1, 1.0, 1.0), 0), SETTINGS[0]])
    assert len(called) == 4 and [mixed[0], mixed[2]] == [first[2], first[0]]
    afresh = run(tmp_path / "new", SETTINGS[:1])
    assert len(called) == 5 and without_time(afresh[0]) == without_time(first[0])


@pytest.mark.wide
def test_an_interrupted_experiment_goes_on(tmp_path, called):
    def interrupt(n):
        if n:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, on_trial=interrupt)
    assert called == [0] and len(list(tmp_path.glob("*.json"))) == 1
    run(tmp_path)
    assert called == [0, 1, 0] and len(list(tmp_path.glob("*.json"))) == 3


@pytest.mark.wide
def test_a_torn_file_does_no_harm(tmp_path, called, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            run(tmp_path, SETTINGS[:1])
    (torn,) = tmp_path.glob("*.tmp")
    torn.write_text(torn.read_text()[:100])
    (trial,) = run(tmp_path, SETTINGS[:1])
    assert called == [0, 0] and trial["history"]["round"] == [0, 2, 4, 6]
    assert run(tmp_path, SETTINGS[:1]) == [trial] and len(called) == 2


@pytest.mark.wide
def test_frozen_trials_do_not_move_x(tmp_path):
    (moving,), (frozen,) = run(tmp_path, SETTINGS[:1]), run(tmp_path, SETTINGS[:1], frozen=True)
    assert max(frozen["history"]["consensus"]) < 1e-20 < moving["history"]["consensus"][-1]
    np.testing.assert_allclose(np.ptp(frozen["history"]["stationarity"]), 0, atol=1e-12)
    assert frozen["history"]["lower_error"][-1] < frozen["history"]["lower_error"][0]


@pytest.mark.quick
def test_scores_are_means_over_the_run_and_over_its_last_fifth():
    history = {"round": list(range(11))} | {
        name: [float(scale * t) for t in range(11)]
        for name, scale in {"metric": 1, "upper_loss": 2, "curvature": 3}.items()
    }
    summary = trial_cache.summarize_trial({"diverged": None, "history": history})
    assert summary["upper_loss"] == 2 * (9 + 10) / 2 and summary["curvature"] == 30
    assert summary["metric"] == sum(range(1, 11)) / 10 and summary["final_metric"] == 9.5
    worst = trial_cache.summarize_trial({"diverged": 3, "history": {}})
    assert worst == {"upper_loss": float("inf"), "metric": float("inf")}


# The tuning


@pytest.mark.parametrize("dataset", ["mnist", "cifar10", "a9a"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_gets_27_settings(dataset, method):
    case = PaperCase(dataset, 5, "iid")
    grid = tuning.list_settings(case, method)
    assert len(set(grid)) == len(grid) == 27
    a, b, e = (
        {float(f"{number:.6g}") for number in numbers}
        for numbers in zip(*((c, c * d, k * c**2) for c, d, k in grid))
    )
    shared = tuning.FACTORS["a9a" if dataset == "a9a" else "meta"]
    assert b == set(shared[1]) and set(shared[0]) <= a
    assert (len(a), len(e)) == ((3, 3) if method in MOMENTUM else (9, 1))


def row(method, k, upper_loss, metric):
    return {"method": method, "constants": (k, k, k), "upper_loss": upper_loss, "metric": metric}


@pytest.mark.quick
def test_the_rules_of_choice():
    """The best loss of any method is 1: "tuned" takes all up to 1.25 as equals."""
    inf = float("inf")
    trials = [
        row("DIAMOND", 1, 1.0, 5.0),  # least loss
        row("DIAMOND", 2, 1.2, 3.0),  # near enough, smaller metric
        row("DIAMOND", 3, 2.3, 0.001),  # collapsed: no metric, but nothing learned
        row("DIAMOND", 4, inf, inf),
        row("GT-SGD", 1, inf, inf),
        row("GT-SGD", 2, 1.5, 0.1),  # none of its own is near: the nearest
        row("GT-SGD", 3, 1.4, 0.2),
        row("M-SGD", 1, inf, inf),
        row("M-SGD", 2, 2.3, 1.0),  # diverged, or this
        row("D-SGD", 1, 1.25, 2.0),  # just near enough
        row("D-SGD", 2, 1.24, 2.1),
    ]
    best = lambda kind: {m: c[0] for m, c in tuning.choose_constants(trials, kind).items()}
    assert best("tuned") == {"DIAMOND": 2, "GT-SGD": 3, "M-SGD": 2, "D-SGD": 1}
    assert best("loss") == {"DIAMOND": 1, "GT-SGD": 3, "M-SGD": 2, "D-SGD": 2}


def made_up(case, scale, method, settings, memory, folder, on_trial, frozen=False):
    """Trials that cost nothing: the loss is |log10 c_alpha| + 1, and c_beta > 2 diverges once."""
    on_trial(len(settings))

    def trial(constants, seed):
        loss = 1 + abs(np.log10(constants[0])) + seed - 100
        failed = 3 if constants[1] > 2 and seed == 101 else None
        names = ("round", "upper_loss", "metric", "curvature")
        return {"diverged": failed, "history": {name: [loss, loss] for name in names}}

    return [trial(*setting) for setting in settings]


def test_tuning_averages_the_seeds_and_stores_all(tmp_path, monkeypatch):
    monkeypatch.setattr(paper_case, "run_trials", made_up)
    store, output = tmp_path / "constants.json", io.StringIO()
    before = {"command": "diamond tune kept", "trials": [{"method": "DIAMOND"}]}
    store.write_text(json.dumps({"kept": before}))
    names = ["a9a-5-iid-p0.3", "mnist-9-iid-p0.3"]
    paper_commands.tune_cases(
        names, SCALE, tmp_path, store, folder=None, console=Console(file=output, width=200)
    )
    constants = json.loads(store.read_text())
    assert list(constants) == ["kept", *names] and "216 trials of 6 rounds" in output.getvalue()
    assert constants["kept"] == before
    mnist = constants["mnist-9-iid-p0.3"]
    assert mnist["command"] == "diamond tune mnist-9-iid-p0.3 --scale tiny"
    for trials in mnist["trials"]:
        a, b, _ = trials["constants"]
        expected = float("inf") if b > 2 else 1.5 + abs(np.log10(a))
        assert trials["upper_loss"] == trials["metric"] == pytest.approx(expected)
    for kind in ("tuned", "loss"):
        assert {m: c[0] for m, c in mnist[kind].items()} == dict.fromkeys(METHODS, 1.0)


def test_the_package_has_the_constants_of_mnist():
    assert {line.case.name for line in paper_figures.figure_lines("fig1")} <= set(STORED)
    assert all(stored["trials"] for stored in STORED.values())


@pytest.mark.quick
@pytest.mark.parametrize("name", list(STORED))
def test_the_constants_of_the_package_follow_from_their_trials(name):
    stored, case = STORED[name], paper_commands.CASES[name]
    assert stored["command"].startswith(f"diamond tune {name}")
    assert stored["device"] and stored["seconds"] > 0
    for method in METHODS:
        method_trials = [tuple(r["constants"]) for r in stored["trials"] if r["method"] == method]
        assert method_trials == tuning.list_settings(case, method)
    for kind in ("tuned", "loss"):
        assert tuning.choose_constants(stored["trials"], kind) == stored[kind]
        assert list(stored[kind]) == list(METHODS)
        losses = {(r["method"], tuple(r["constants"])): r["upper_loss"] for r in stored["trials"]}
        assert all(np.isfinite(losses[m, tuple(c)]) for m, c in stored[kind].items())


def test_constants_are_found_for_every_density():
    constants = tuning.load_constants(PaperCase("mnist", 9, "label", p=0.8), "tuned", "M-SGD")
    assert constants == tuple(STORED["mnist-9-label-p0.3"]["tuned"]["M-SGD"])
    assert tuning.load_constants(CASE, "published", "D-SGD") == (10.0, 10.0, 0.1)


# The figures


@pytest.mark.parametrize("figure, count", [("fig1", 16), ("fig2", 16), ("fig3", 6), ("fig4", 14)])
def test_every_figure_shows_its_lines_once_with_a_colour_each(figure, count):
    lines = paper_figures.figure_lines(figure)
    assert len(set(lines)) == len(lines) == count
    panels = {paper_figures._panel_title(figure, line.case) for line in lines}
    for panel in panels:
        assert sum(paper_figures._panel_title(figure, line.case) == panel for line in lines) <= 6


def reproduce(kind, scale, out, monkeypatch):
    two = [paper_figures.FigureLine(method, CASE, method) for method in ("DIAMOND", "D-SGD")]
    monkeypatch.setattr(paper_figures, "figure_lines", lambda figure: two)
    output = io.StringIO()
    paper_commands.reproduce("fig1", scale, kind, out, None, Console(file=output, width=200))
    place = out / "fig1"
    assert (place / f"fig1-{kind}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (place / f"fig1-{kind}.pdf").read_bytes()[:5] == b"%PDF-"
    numbers = json.loads((place / f"fig1-{kind}.json").read_text())
    return numbers, (place / f"fig1-{kind}.md").read_text(), output.getvalue()


def tables(text):
    """Markdown tables as lists of dicts."""
    for block in text.split("\n\n"):
        head, _, *body = [
            [cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()
        ]
        yield [dict(zip(head, line)) for line in body]


@pytest.mark.wide
def test_an_experiment_writes_pictures_numbers_and_tables(tmp_path, monkeypatch, called):
    numbers, text, output = reproduce("tuned", SCALE, tmp_path, monkeypatch)
    assert called == [0, 1, 0, 1]
    assert [(t["label"], t["seed"]) for t in numbers["trials"]] == [
        ("DIAMOND", 0), ("DIAMOND", 1), ("D-SGD", 0), ("D-SGD", 1)
    ]  # fmt: skip
    constants = STORED[CASE.name]["tuned"]
    assert all(t["constants"] == constants[t["label"]] for t in numbers["trials"])
    main, pace = tables(text)
    for shown, written, quick in zip(main, numbers["table"], pace):
        rows_of_line = [t["history"] for t in numbers["trials"] if t["label"] == written["line"]]
        last = np.array([history["upper_loss"][-1] for history in rows_of_line])
        metric = np.array([np.mean(history["metric"][1:]) for history in rows_of_line])
        for name, values in {"upper_loss": last, "metric": metric}.items():
            mean, spread = values.mean(), abs(values[0] - values[1]) / np.sqrt(2)
            assert [written[name], written[f"{name}_sd"]] == pytest.approx([mean, spread])
            assert shown[name] == f"{mean:.4g} +- {spread:.2g}"
        assert shown["line"] == quick["line"] == written["line"] in output
        assert shown["diverged"] == "0"
        totals = [np.cumsum(history["metric"][1:]) / [1, 2, 3] for history in rows_of_line]
        fits = [np.cov(np.log([[2, 4, 6], total]))[0] for total in totals]
        slope = np.mean([together / alone for alone, together in fits])
        assert quick["slope"].startswith(f"{slope:.2f} [")
    again, _, _ = reproduce("tuned", SCALE, tmp_path, monkeypatch)
    assert len(called) == 4 and again == numbers


@pytest.mark.wide
def test_the_published_constants_diverge_and_the_table_says_so(tmp_path, monkeypatch):
    scale = ExperimentScale("tiny", rounds=400, every=200, seeds=1, rows=None)
    numbers, text, output = reproduce("published", scale, tmp_path, monkeypatch)
    (main,) = tables(text)  # no second table: nothing has a pace
    for shown, trial in zip(main, numbers["trials"]):
        assert trial["constants"] == [10.0, 10.0, 0.1]
        assert shown["diverged"] == f"1 (round {trial['diverged']})" in output
        assert trial["diverged"] < 400 and "upper_loss" not in shown


def test_the_commands_print_one_document_of_json(tmp_path, monkeypatch):
    two = [paper_figures.FigureLine(method, CASE, method) for method in ("DIAMOND", "D-SGD")]
    monkeypatch.setattr(paper_figures, "figure_lines", lambda figure: two)
    monkeypatch.setattr(cases, "QUICK", SCALE)
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    invoke = lambda *words: CliRunner().invoke(cli.app, [*map(str, words), "--json"])
    result = invoke("reproduce", "fig1", "--quick", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    (figure,) = json.loads(result.stdout)["figures"]
    assert figure["figure"] == "fig1" and figure["scale"] == "tiny"
    numbers = json.loads((tmp_path / "fig1" / "fig1-tuned.json").read_text())
    assert figure["table"] == numbers["table"] and "means over 2 seeds" in result.stderr
    assert all(Path(file).is_file() for file in figure["files"])
    monkeypatch.setattr(paper_case, "run_trials", made_up)
    store = tmp_path / "constants.json"
    tuned = invoke("tune", CASE.name, "--scale", "quick", "--store", store, "--out", tmp_path)
    assert tuned.exit_code == 0, tuned.output
    tuned_data = json.loads(tuned.stdout)
    assert (
        tuned_data["cases"][CASE.name]["tuned"] == json.loads(store.read_text())[CASE.name]["tuned"]
    )
    assert tuned_data["store"] == str(store) and f"tuning {CASE.name}" in tuned.stderr


def test_a_table_shows_what_only_later_lines_have():
    text = paper_commands.format_markdown(
        [{"line": "a", "diverged": "1"}, {"line": "b", "metric": 0.123456}]
    )
    assert text == "| line | diverged | metric |\n| --- | --- | --- |\n| a | 1 |  |\n" + (
        "| b |  | 0.1235 |\n"
    )


@pytest.mark.quick
def test_figures_show_what_their_axes_say(monkeypatch):
    """Every quantity has numbers of its own, so that none can stand for another."""
    figures_seen = saved_figures.record_figures(monkeypatch)
    keys = ("metric", "upper_loss", "accuracy", "test_loss", "round", "samples", "seconds")
    course = lambda run: {
        key: [run + 10.0 * i + k for k in (1, 2, 3)] for i, key in enumerate(keys)
    }
    trial = lambda run: {"history": course(run), "diverged": None}
    trials = {
        paper_figures.FigureLine(name, CASE, name): [trial(i), trial(i + 2)]
        for i, name in ((0, "DIAMOND"), (4, "D-SGD"))
    }
    paper_figures.draw_figure("fig1", trials, [Path("one.png")])
    paper_figures.draw_costs(trials, [Path("two.png")])
    words = {label: key for key, label in paper_figures.LABELS.items()}
    for figure, rows in zip(figures_seen, (2, 2)):
        axes = np.array(figure.axes).reshape(rows, -1)
        for row in axes:
            key = words[row[0].get_ylabel()]  # said once for all columns
            for axis in row:
                along = words[axis.get_xlabel()]
                shown = saved_figures.plotted_lines(axis)
                for line, both in trials.items():
                    mean = lambda key, both=both: np.mean([t["history"][key] for t in both], axis=0)
                    np.testing.assert_allclose(shown[line.label], [mean(along), mean(key)])
    drawn = [[words[axis.get_xlabel()] for axis in figure.axes] for figure in figures_seen]
    assert {*drawn[0]} == {"round"} and drawn[1][:3] == ["round", "samples", "seconds"]
    assert [words[figures_seen[1].axes[k].get_ylabel()] for k in (0, 3)] == [
        "accuracy",
        "test_loss",
    ]
