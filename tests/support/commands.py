"""Commands of `diamond`, in this process."""

import json

from typer.testing import CliRunner

from diamond import cli


def command(*words, code=0):
    """What the command said; it must end with this exit code."""
    env = {"NO_COLOR": "1", "COLUMNS": "150", "TERM": "dumb"}
    result_of_command = CliRunner().invoke(cli.app, [str(word) for word in words], env=env)
    if result_of_command.exception and not isinstance(result_of_command.exception, SystemExit):
        raise result_of_command.exception
    assert result_of_command.exit_code == code, result_of_command.output
    return result_of_command


def result(*words, code=0):
    """What the command printed as JSON."""
    return json.loads(command(*words, "--json", code=code).stdout)
