"""Schedules of step sizes, and deferred numbers that a run estimates."""
