"""Give the relative links of a README the address of their files: an index shows it alone.

Usage: python absolute_links.py README.md TAG
"""

import re
import sys
import tomllib
from pathlib import Path


def make_absolute(text, source, tag):
    """Return Markdown whose links and pictures of files point to the host, at the tag."""

    def replace(link):
        picture, words, target = link.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}[{words}]({source}/{kind}/{tag}/{target})"

    return re.sub(r"(!?)\[([^]]*)\]\((?![\w+.-]+:|#)([^)]+)\)", replace, text)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    project = tomllib.loads(path.with_name("pyproject.toml").read_text())["project"]
    path.write_text(make_absolute(path.read_text(), project["urls"]["Source"], sys.argv[2]))
