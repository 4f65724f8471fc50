"""Mixing programs: the change of every agent's message in one exchange."""
