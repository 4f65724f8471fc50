"""Agents as peers: each holds its own rows, contacts only its neighbours, and survives crashes."""
