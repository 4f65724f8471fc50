"""Files of a public host, of releases and of the paper: valid, pinned, in step with each other."""

import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

yaml = pytest.importorskip("yaml", reason="the extra docs is not installed")

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = [
    ("vendor.github-workflows", WORKFLOWS),
    ("vendor.dependabot", [ROOT / ".github" / "dependabot.yml"]),
    ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("schema, files", SCHEMAS, ids=[name for name, _ in SCHEMAS])
def test_files_of_the_host_have_their_schema(schema, files):
    cli = pytest.importorskip("check_jsonschema.cli", reason="the extra dev is not installed")
    result = CliRunner().invoke(cli.main, ["--builtin-schema", schema, *map(str, files)])
    assert result.exit_code == 0, result.output


def test_workflows_pass_the_security_audit():
    zizmor = Path(sys.executable).with_name("zizmor")
    if not zizmor.exists():
        pytest.skip("the extra dev is not installed")
    command = [zizmor, "--offline", "--quiet", "--min-severity", "low", ".github"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr


def test_actions_are_commits_with_their_version():
    texts = [path.read_text() for path in WORKFLOWS]
    used = {line for text in texts for line in re.findall(r"uses: (.*)", text)}
    foreign = {line for line in used if not line.startswith("./")}
    assert len(foreign) >= 5
    assert not [line for line in foreign if not re.match(r"[\w/-]+@[0-9a-f]{40} # v\d", line)]
    # One commit for each version of an action, in all workflows.
    names = [re.match(r"[\w-]+/[\w-]+", line)[0] for line in foreign]
    commits = {(name, re.search(r"@(\w+)", line)[1]) for name, line in zip(names, foreign)}
    assert len(commits) == len(set(names))


def test_every_script_of_a_workflow_can_be_run_here():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for path in WORKFLOWS:
        for step in re.findall(r"- run: (.*)", path.read_text()):
            if step.startswith("make "):
                assert step.split()[1] in targets, step
            elif step.startswith(".ci/"):
                script = ROOT / step.split()[0]
                assert script.stat().st_mode & 0o111, f"{script} is not executable"


def test_every_classifier_is_in_the_matrix():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    matrix = jobs["python"]["strategy"]["matrix"]["python"]
    tried = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert tried[0] == PROJECT["requires-python"].removeprefix(">=") == matrix[0]
    assert set(tried) <= set(matrix)


def test_the_paper_has_the_sections_that_a_review_asks_for():
    _, head, body = (ROOT / "paper" / "paper.md").read_text().split("---\n", 2)
    assert yaml.safe_load(head)["bibliography"] == "paper.bib"
    sections = re.findall(r"^# (.*)", body, re.M)
    assert sections == [
        "Summary",
        "Statement of need",
        "State of the field",
        "Software design",
        "Research impact statement",
        "AI usage disclosure",
        "Acknowledgements",
        "References",
    ]
    assert 750 <= len(body.split()) <= 1750
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(), re.M)
    assert len(entries) == len(set(entries))
    assert set(re.findall(r"@(\w+)", body)) == set(entries)


def test_links_of_a_readme_get_the_address_of_their_files():
    make_absolute = runpy.run_path(str(ROOT / ".ci" / "absolute_links.py"))["make_absolute"]
    text = "![a](docs/a.svg) [b](b.md#part) [c](https://c.org/d) [d](#part)"
    assert make_absolute(text, "https://host/p", "v1") == (
        "![a](https://host/p/raw/v1/docs/a.svg) [b](https://host/p/blob/v1/b.md#part) "
        "[c](https://c.org/d) [d](#part)"
    )
    readme = make_absolute((ROOT / "README.md").read_text(), PROJECT["urls"]["Source"], "v1")
    assert not [link for link in re.findall(r"\]\(([^)]+)\)", readme) if "://" not in link]


def test_the_documentation_of_each_version_is_published_beside_the_others(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    clone, remote = tmp_path / "clone", tmp_path / "remote.git"
    (clone / ".ci").mkdir(parents=True), (clone / "site").mkdir()
    script = shutil.copy(ROOT / ".ci" / "publish_docs", clone / ".ci")
    for folder, options in ((clone, []), (remote, ["--bare"])):
        subprocess.run(["git", "init", "--quiet", *options, folder], check=True)
    for version in ("dev", "0.9.0", "0.10.0", "0.9.1"):
        (clone / "site" / "index.html").write_text(version)
        subprocess.run(["bash", script, version, remote], check=True, capture_output=True)
    refused = subprocess.run(["bash", script, "../x", remote], capture_output=True, text=True)
    assert refused.returncode == 1 and "neither a version" in refused.stderr

    def read(name):
        command = ["git", "-C", remote, "show", f"gh-pages:{name}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    versions = json.loads(read("versions.json"))
    assert [entry["version"] for entry in versions] == ["0.10.0", "0.9.1", "0.9.0", "dev"]
    assert [entry["aliases"] for entry in versions] == [["latest"], [], [], []]
    assert {name: read(f"{name}/index.html") for name in ("latest", "dev", "0.9.1")} == {
        "latest": "0.10.0",
        "dev": "dev",
        "0.9.1": "0.9.1",
    }
    assert 'url=latest/"' in read("index.html")
