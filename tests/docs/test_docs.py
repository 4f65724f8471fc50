"""What README and documentation say is what happens: their code runs, their files are valid."""

import base64
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
import typer
from browser_pages import needs_browser
from fast_compilation import without_optimizations
from pages import DOCS, GUIDES, PAGES, RESULTS, ROOT, blocks, commands, play, verbs, written

import diamond
from diamond import catalogue, cli
from diamond.hardware import compilation_cache as cache
from diamond.metrics import measures

README = ROOT / "README.md"
WORDS = 26_000  # of all guides together, tutorials among them, but for generated tables
SUBMODULES = ["interface", "callbacks", "cost", "data", "data.partition", "estimators", "gallery"]
SUBMODULES += ["hypergradient", "implicit", "network", "network.channels", "prox", "report"]
SUBMODULES += ["schedules", "theory", "torch", "tree"]


@pytest.fixture(scope="module")
def compiled_once():
    """Pages share their problems: what one has compiled, however small, the next finds."""
    least = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    yield
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)


@pytest.fixture
def here(tmp_path, monkeypatch, float32, compiled_once):
    """In an empty folder, nothing kept in the user's cache; its files can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cache, "enable_compile_cache", lambda: None)
    with without_optimizations():
        yield tmp_path


def test_the_example_of_the_readme_learns_and_prints_what_is_shown(here):
    run = play(README, kinds=["python"])["run"]
    assert run.history["upper_loss"][-1] < 0.5 * run.history["upper_loss"][0]
    assert run.history["metric"][-1] < 0.1 * run.history["metric"][0]
    (shown,) = [text for kind, text in blocks(README) if kind == "text"]
    first, last, *penalties = map(float, re.findall(r"\d[\d.]*", shown))
    assert [first, last] == pytest.approx(run.history["upper_loss"][[0, -1]], abs=0.01)
    assert penalties == pytest.approx(np.exp(run.x.mean(axis=0)), rel=0.1)
    assert run.message.startswith("converged: ")


LONG_TUTORIALS = {"fair_comparison", "one_representation", "text_sources", "three_sites"}
LONG_TUTORIALS |= {"wrong_labels"}  # a minute each, with processes and pictures
long_pages = [page for page in PAGES if page.stem in LONG_TUTORIALS]
with_code = [
    page
    for page in PAGES[1:]
    if page not in long_pages and {"python", "shell", "toml"} & {kind for kind, _ in blocks(page)}
]


@pytest.mark.wide(keep=["deploy_sites.md", "hospitals.md", "own_problem.md", "write_a_method.md"])
@pytest.mark.parametrize("page", with_code, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page, here):
    for package in re.findall(
        r"^(?:import|from) (flax|equinox|torch|peft)", page.read_text(), re.M
    ):
        pytest.importorskip(package, reason=f"{package} is not installed")
    play(page)


@pytest.mark.slow
@pytest.mark.parametrize("page", long_pages, ids=lambda page: page.name)
def test_the_code_of_a_long_tutorial_runs(page, here):
    play(page)


def test_the_verbs_of_the_readme_are_run_on_a_page():
    assert {"new", "check", "run", "compare"} <= verbs([README]) <= verbs(PAGES[1:])


def test_the_readme_stays_short():
    assert len(README.read_text().splitlines()) <= 120


@pytest.mark.quick
def test_pages_and_paper_say_how_many_methods_there_are():
    count = len({*catalogue.names()} - {catalogue.COMPOSED, "solve"})
    for page in ["README.md", "docs/index.md", "paper/paper.md"]:
        assert f"{count} methods" in (ROOT / page).read_text(), page


@pytest.mark.quick
def test_every_page_is_in_the_navigation_once():
    config = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r": ([\w/-]+\.md)$", config, re.M)
    shown = {*GUIDES, *RESULTS.glob("*.md")}
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in shown)
    sections = {page.split("/")[0] for page in listed if "/" in page}
    assert sections == {"tutorials", "how-to", "reference", "explanation", "results"}


@pytest.mark.quick
def test_the_guides_stay_short():
    assert sum(len(written(page).split()) for page in GUIDES) <= WORDS


@pytest.mark.quick
@pytest.mark.parametrize("page", sorted(RESULTS.glob("*.md")), ids=lambda page: page.name)
def test_the_commands_of_a_result_exist(page):
    for words in commands(page):
        assert words[0] in known_commands()["diamond"], words
    for script in re.findall(r"(?:python )?(benchmarks/\w+\.py)", page.read_text()):
        assert (ROOT / script).is_file(), script


@pytest.mark.quick
def test_every_path_that_a_page_names_exists():
    for page in [*GUIDES, *RESULTS.glob("*.md")]:
        found = re.findall(r"`((?:diamond|tests|benchmarks|docs)/[\w/.-]+)`", page.read_text())
        assert not [path for path in found if not (ROOT / path).exists()], page


@pytest.mark.quick
def test_every_page_and_picture_that_a_page_links_to_exists():
    for page in [*GUIDES, *DOCS.glob("results/**/*.md")]:
        links = re.findall(r"\]\(([^)#: ]+)[^):]*\)", page.read_text())
        assert not [link for link in links if not (page.parent / link).exists()], page


@pytest.mark.quick
def test_the_architecture_names_every_folder_and_files_that_exist():
    page = (DOCS / "explanation" / "architecture.md").read_text()
    package = ROOT / "diamond"
    folders = {path.name for path in package.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert {*re.findall(r"^\| `diamond/(\w+)/` \|", page, re.M)} == folders
    for name in re.findall(r"`(\w+\.(?:py|js))`", page):
        assert [*package.rglob(name)], name


def known_commands():
    """The commands of diamond by group, each with its options."""
    found = {}

    def walk(group, name):
        found[name] = {}
        for word, command in group.commands.items():
            if hasattr(command, "commands"):
                walk(command, f"{name} {word}")
            options = [one for parameter in command.params for one in parameter.opts]
            found[name][word] = [one for one in options if one.startswith("--")]

    walk(typer.main.get_command(cli.app), "diamond")
    return found


@pytest.mark.quick
def test_the_generated_tables_are_current(hooks):
    for name in hooks.COMMITTED:
        text = (hooks.REFERENCE / f"{name}.md").read_text()
        assert text == hooks.fill_marks(text, committed=True), "run `python docs/hooks.py`"


@pytest.mark.quick
def test_every_command_and_option_is_on_its_page():
    page = (DOCS / "reference" / "command_line.md").read_text()
    for group, found in known_commands().items():
        for command, options in found.items():
            if f"{group} {command}" in known_commands():
                continue
            section = page.split(f"\n## {group} {command}\n")[1].split("\n## ")[0]
            assert not [one for one in options if f"`{one}`" not in section], command


@pytest.mark.quick
def test_every_key_is_on_its_page_with_a_meaning():
    from diamond.config.experiment_file import Experiment
    from diamond.config.federation_file import Federation
    from diamond.config.partition_section import partition_rows

    page = (DOCS / "reference" / "experiment_file.md").read_text()
    names = [*Experiment.model_fields, *Federation.model_fields]
    names += {*inspect.signature(partition_rows).parameters} - {"real", "first"}
    for name in names:
        assert re.search(rf"^\| `{name}` \| [^|]{{8,}} \|", page, re.M), name


@pytest.mark.quick
def test_every_column_of_the_history_is_on_its_page(float32):
    page = (DOCS / "reference" / "history.md").read_text()
    problem = diamond.gallery.quadratic(agents=2, upper=2, lower=2, rows=6)
    links = diamond.network.path(2).with_links(rate=1e6, joules_per_bit=1e-9)
    with without_optimizations():
        run = diamond.simulate(problem, links, diamond.dsgd(batch=2), rounds=1)
    known = {*measures.LOSS, *measures.CHEAP, *measures.SOLVED, *run.history}
    assert not [name for name in known if f"`{name}`" not in page]


@pytest.mark.quick
def test_a_formula_becomes_mathml(hooks):
    inline = hooks.convert_formulas('a <span class="arithmatex">\\(x_1 &lt; 2\\)</span> b')
    assert inline.startswith('a <math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">')
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in inline and inline.endswith("</math> b")
    block = (
        r'<div class="arithmatex">\[\begin{aligned} a &amp;= b \\ c &amp;= d \end{aligned}\]</div>'
    )
    assert hooks.convert_formulas(block).count("<mtr>") == 2


@pytest.mark.wide
def test_a_notebook_shows_what_its_code_prints_and_draws(hooks, tmp_path, monkeypatch):
    """Files are written, promised text gives way to what was printed; the second time is cached."""
    notebooks = hooks.notebooks
    monkeypatch.setattr(notebooks, "CACHE", tmp_path)
    page = "\n".join(
        [
            "# Page\n\n<!-- notebook: page -->\nSee [data](../how-to/data.md#scaling).\n",
            "```python\n# one.py\nVALUE = 3\n```\n",
            "```python\nfrom one import VALUE\nprint(VALUE)\nprint(VALUE + 1)\n```\n",
            "```text\n...\n```\n",
            "```shell\necho $((40 + 2))\n```\n",
            "```python\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);\n```\n",
        ]
    )
    shown = hooks.show_page(page)
    assert [line for line in shown.splitlines() if line.isdigit()] == ["3", "4", "42"]
    assert "```python\n# one.py\nVALUE = 3\n```" in shown and "```text\n" not in shown
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]+)"', shown)
    assert base64.b64decode(picture)[1:4] == b"PNG"
    (name, address) = re.search(r'download="(.*?)" href="data:.*?;base64,(.*?)"', shown).groups()
    cells = json.loads(base64.b64decode(address))["cells"]
    assert name == "page.ipynb" and "main/docs/tutorials/../how-to/data.md#scaling)" in str(cells)
    monkeypatch.setattr(notebooks, "_execute", None)
    assert hooks.show_page(page) == shown


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly: a broken link, anchor or reference is an error."""
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(DOCS, folder / "docs")
    (folder / "diamond").symlink_to(ROOT / "diamond")
    environment = os.environ | {"DIAMOND_TUTORIALS": "off"}  # they run in tests of their own
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder / "site"


@pytest.mark.wide
def test_the_site_is_whole_and_fetches_nothing(site):
    made = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {"index.html", "reference/errors.html", "explanation/algorithms.html"} <= made
    for page in site.rglob("*.html"):
        text = page.read_text()
        text = text.replace('<link rel="canonical"', "<canonical")  # an address, not fetched
        fetched = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="([^"]+)"', text)
        fetched = [address for address in fetched if not address.startswith("data:")]
        assert fetched and not [address for address in fetched if "//" in address], page
        assert 'class="arithmatex"' not in text and "<!-- generated" not in text, page
        assert "| --- |" not in text, page  # a table that lacks the empty line before it


@pytest.mark.wide
@needs_browser
def test_the_search_works_in_a_site_that_is_opened_as_a_file(site, browser):
    requests, page = [], browser.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "reference" / "errors.html").as_uri())
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox")
    box.press_sequentially("hypergradient")
    page.get_by_text(re.compile(r"^\d+ results$")).wait_for()
    assert box.input_value() == "hypergradient"
    page.close()
    assert not [address for address in requests if not address.startswith("file:")]


@pytest.mark.wide
def test_every_public_name_is_in_the_reference(site):
    text = "".join(page.read_text() for page in (site / "reference" / "api").glob("*.html"))
    headings = {*re.findall(r'<h[23] id="[^"]*" class="doc doc-heading">(.*?)</h[23]>', text, re.S)}
    known = {*re.findall(r"diamond(?:\.\w+)+", " ".join(headings))}
    own = {name for name in diamond.__all__ if not inspect.ismodule(getattr(diamond, name))}
    names = {f"diamond.{name}" for name in own - {"__version__", "Network"}}
    for module in SUBMODULES:
        made = importlib.import_module(f"diamond.{module}")
        listed = getattr(made, "__all__", None) or public_functions(made)
        shown = [name for name in listed if not inspect.ismodule(getattr(made, name))]
        names |= {f"diamond.{module}.{name}" for name in shown}
    assert not names - known


def public_functions(module):
    """Public functions and classes of a module without `__all__`, but for errors."""
    of = lambda value: inspect.isfunction(value) or inspect.isclass(value)
    own = lambda value: str(getattr(value, "__module__", "")).startswith("diamond")
    found = {n: v for n, v in vars(module).items() if n[0] != "_" and of(v) and own(v)}
    return [n for n, v in found.items() if not (inspect.isclass(v) and issubclass(v, Exception))]


@pytest.mark.quick
def test_documented_parameters_exist():
    """Several may share a line, as in `alpha, beta: steps`, so mkdocstrings cannot check it."""
    modules = [importlib.import_module(f"diamond.{name}") for name in SUBMODULES]
    makers = [catalogue.maker(name) for name in catalogue.names()]
    values = [getattr(diamond, name) for name in diamond.__all__] + makers
    values += [getattr(made, name) for made in modules for name in public_functions(made)]
    for value in values:
        section = re.search(r"^Args:\n((?:    .*\n?|\n)*)", inspect.getdoc(value) or "", re.M)
        if section and callable(value):
            found = re.findall(r"^    ([\w*][\w*, ]*):", section[1], re.M)
            names = {name.strip(" *") for line in found for name in line.split(",")}
            assert names <= {*inspect.signature(value).parameters}, value
