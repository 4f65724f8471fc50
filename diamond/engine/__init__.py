"""Execution of runs: one algorithm, problem and network on different backends."""
