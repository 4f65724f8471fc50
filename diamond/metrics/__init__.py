"""What is measured of a run while it is made, and said of it: warnings, divergence, stops."""
