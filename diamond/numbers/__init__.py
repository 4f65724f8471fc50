"""Schedules of step sizes, and numbers left open until a run finds them."""
