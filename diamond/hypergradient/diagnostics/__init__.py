"""Measurements of estimators: their bias and cost, and the curvature that they divide by."""
