"""The rule that chooses step sizes, and what it measures for that."""
