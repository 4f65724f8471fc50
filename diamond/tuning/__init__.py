"""Tuning: candidates compared by trials, the same number and length for each."""
