"""Print the table of docs/reference/methods.md: `python -m diamond.catalogue`."""

from .methods_table import markdown

if __name__ == "__main__":
    print(markdown())
