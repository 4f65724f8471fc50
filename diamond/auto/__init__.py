"""Automatic step sizes: the step rule, and the measurements for it."""
