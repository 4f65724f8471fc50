"""Mixing programs: what one exchange makes of every agent's message."""
