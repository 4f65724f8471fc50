"""Diagnostics of estimators: bias, cost, and curvature."""
