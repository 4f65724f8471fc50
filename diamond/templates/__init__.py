"""Ready-made experiments: the demos, and the files that `diamond new` writes."""
