"""`python -m diamond.catalogue` prints the table of docs/methods.md."""

from .table import markdown

if __name__ == "__main__":
    print(markdown())
