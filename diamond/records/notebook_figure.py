"""Figures that a notebook shows."""

from io import BytesIO

from matplotlib.figure import Figure  # pyplot takes longer to import


class NotebookFigure(Figure):
    """A figure of matplotlib that a notebook shows, also before pyplot is imported."""

    def _repr_png_(self) -> bytes:
        stream = BytesIO()
        self.savefig(stream, format="png", dpi=80)
        return stream.getvalue()
