"""Advice: measure a problem on its network and recommend a method."""
