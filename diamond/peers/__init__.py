"""Agents as peers: each holds its own rows, talks to its neighbours only, and survives a crash."""
