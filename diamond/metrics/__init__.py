"""Measurement of runs: measures, warnings, divergence, stopping, progress display."""
