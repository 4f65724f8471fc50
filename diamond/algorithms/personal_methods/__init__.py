"""Methods whose agents each have a lower level of their own, or none."""
