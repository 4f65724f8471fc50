"""A package that is not there is named, with what installs it, and never hides another error."""

import subprocess
import sys

import pytest
import typer

from diamond.cli.app import EXTRA_BY_PACKAGE, FAILED, report_errors

WITHOUT_PYDANTIC = """
import sys, typer
sys.modules["pydantic"] = None  # as if it were not installed
from diamond.cli.app import report_errors
for reads in (True, False):
    try:
        with report_errors():
            if reads:
                import diamond.config.experiment_file
            raise FileNotFoundError("nowhere")
    except typer.Exit as ended:
        print(ended.exit_code)
"""


@pytest.mark.quick
@pytest.mark.parametrize("name", ["pydantic", "matplotlib.figure", "msgpack"])
def test_it_is_said_in_one_sentence(name, capsys):
    with pytest.raises(typer.Exit) as ended, report_errors():
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    top = name.split(".")[0]
    message = f"{top} is not installed: pip install 'diamond-bilevel{EXTRA_BY_PACKAGE[top]}'\n"
    assert (ended.value.exit_code, capsys.readouterr().err) == (FAILED, message)


@pytest.mark.quick
def test_a_module_of_the_users_own_is_no_package_of_ours():
    with pytest.raises(ModuleNotFoundError, match="helpers"), report_errors():
        raise ModuleNotFoundError("No module named 'helpers'", name="helpers")


@pytest.mark.wide
def test_without_pydantic_commands_say_so_and_other_errors_stay_their_own():
    words = [sys.executable, "-c", WITHOUT_PYDANTIC]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "2"]
    asked = "pydantic is not installed: pip install 'diamond-bilevel'"
    assert done.stderr.splitlines() == [asked, "nowhere"]
