"""`python -m diamond` is the `diamond` command."""

from .cli import app

app()
