"""Interface between algorithms and engine: a round as one agent sees it."""
