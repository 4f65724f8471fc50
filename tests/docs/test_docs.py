"""What README and documentation say is what happens: their code runs, their files are valid."""

import re

import jax
import pytest
from fast_compilation import without_optimizations
from pages import PAGES, ROOT, blocks, play, verbs

from diamond.hardware import compilation_cache as cache

README = ROOT / "README.md"


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


def test_the_example_of_the_readme_learns(here):
    history = play(README, kinds=["python"])["run"].history
    assert history["upper_loss"][-1] < 0.5 * history["upper_loss"][0]
    assert history["metric"][-1] < 0.1 * history["metric"][0]


with_code = [
    page for page in PAGES[1:] if {"python", "shell", "toml"} & {kind for kind, _ in blocks(page)}
]


@pytest.mark.parametrize("page", with_code, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page, here):
    for package in re.findall(r"^(?:import|from) (flax|equinox)", page.read_text(), re.M):
        pytest.importorskip(package, reason=f"{package} is not installed")
    play(page)


def test_the_verbs_of_the_readme_are_run_on_a_page():
    assert {"new", "check", "run", "compare"} <= verbs([README]) <= verbs(PAGES[1:])


def test_the_readme_stays_short():
    assert len(README.read_text().splitlines()) <= 120


def test_every_page_is_in_the_navigation():
    said = (ROOT / "mkdocs.yml").read_text()
    assert set(re.findall(r": (\w+\.md)$", said, re.M)) == {page.name for page in PAGES[1:]}


def test_the_site_is_built_whole_and_asks_nobody_else(tmp_path):
    """Strictly: a broken link or a page left out is an error. Nothing is fetched to show it."""
    pytest.importorskip("material", reason="the extra docs is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert {"index.html", "faq.html", "algorithms.html"} <= made
    for page in tmp_path.rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|link|img|iframe)[^>]*(?:src|href)="([^"]+)"', page.read_text()
        )
        assert fetched and not [address for address in fetched if "//" in address], page
