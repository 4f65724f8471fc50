"""Every problem of the gallery has an experiment to start from, whole and of the right kind."""

import pytest
from fast_compilation import skip_loss_checks

from diamond.config.experiment_file import load
from diamond.config.problem_section import IN_PYTHON, problem_names
from diamond.config.validation_errors import BadExperiment
from diamond.experiment import jobs
from diamond.templates.experiment_template import write_experiment
from diamond.templates.problem_templates import TEMPLATE_SETTINGS


@pytest.mark.quick
def test_every_problem_can_be_started_from():
    assert {*problem_names(), *IN_PYTHON} - {"digits"} == set(TEMPLATE_SETTINGS)


@pytest.mark.quick
@pytest.mark.parametrize("kind", TEMPLATE_SETTINGS)
def test_a_file_of_the_gallery_is_sound(kind, tmp_path, monkeypatch):
    skip_loss_checks(monkeypatch)
    path, *_ = write_experiment(tmp_path, "mine", kind)
    experiment = load(path)
    with jobs.use_precision(experiment):
        problem = jobs.build_problem(experiment, "mine.toml")
    assert problem.lower_level in experiment.algorithm[0].build().lower_levels
    text = path.read_text()
    assert text.startswith(f"# {kind}:\n#\n# ") and "f_i =" in text
    again = load(path, ["seed=1"])
    assert again.problem.options == experiment.problem.options


@pytest.mark.quick
def test_a_problem_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(
        BadExperiment, match="no problem 'actor_kritic' to start from; did you mean"
    ):
        write_experiment(tmp_path, "mine", "actor_kritic")
    assert not [*tmp_path.iterdir()]
