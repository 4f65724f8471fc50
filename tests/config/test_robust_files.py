"""Robust mixing in files: as the function makes it, written back in full, and mistakes named."""

from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from diamond.config.components import read_network
from diamond.config.previews import preview_network
from diamond.network.liars import describe_defense


def message(value):
    reader = TypeAdapter(Annotated[Any, BeforeValidator(read_network)])
    with pytest.raises(ValidationError) as error:
        reader.validate_python(value)
    return str(error.value.errors()[0]["ctx"])


def test_a_table_and_a_text_name_the_defense():
    for value in (
        "complete:8,robust=trimmed",
        {"graph": "complete", "agents": 8, "robust": "trimmed"},
    ):
        part = read_network(value)
        assert part.build().defense == ("trimmed", 1)
        assert part.options["robust"] == "trimmed" and part.options["liars"] == 1
        again = read_network({"graph": part.name, **part.options})
        assert again.build().name == "complete(8), trimmed against 1 liar"


def test_mistakes_are_named():
    assert "cannot be defended against 1 liar" in message("ring:8,robust=clipped")
    assert "no robust mixing 'median'" in message("complete:8,robust=median")
    assert 'needs robust = "clipped"' in message("complete:8,liars=1")


def test_the_number_of_liars_of_a_graph_is_described():
    network, numbers = preview_network("complete:8")
    assert numbers["tolerated_liars"] == 2
    assert "against 2 liars" in describe_defense(network) and "is not" in describe_defense(network)
    assert "mixing is clipped against 1" in describe_defense(network.robust())
    assert describe_defense(preview_network("ring:8")[0]).startswith("no liar can be survived")
