"""Experiments as runs on disk: plan, execute, resume, compare and load."""
