"""The README's code runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_and_learns(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    history = names["run"].history
    assert history["upper_loss"][-1] < 0.5 * history["upper_loss"][0]
    assert history["metric"][-1] < 0.1 * history["metric"][0]
    assert str(history["bytes"][-1]) in capsys.readouterr().out


def test_it_stays_short():
    assert len(README.read_text().splitlines()) <= 120
