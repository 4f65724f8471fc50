"""Commands of `diamond`, in this process."""

import json

from typer.testing import CliRunner

from diamond import cli


def command(*words, code=0):
    """What the command said; it must end with this exit code."""
    env = {"NO_COLOR": "1", "COLUMNS": "150", "TERM": "dumb"}
    found = CliRunner().invoke(cli.app, [str(word) for word in words], env=env)
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == code, found.output
    return found


def result(*words, code=0):
    """What the command printed as JSON."""
    return json.loads(command(*words, "--json", code=code).stdout)
