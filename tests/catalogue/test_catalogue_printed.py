"""The table of methods, as `python -m diamond.catalogue` prints it."""

import runpy

from diamond import catalogue


def test_the_printed_table_is_the_one_of_the_documentation(capsys):
    runpy.run_module("diamond.catalogue.__main__", run_name="__main__")
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) > 40
    assert printed.strip() == catalogue.markdown().strip()
