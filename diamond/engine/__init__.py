"""How rounds are run: the same algorithm, problem and network on different machinery."""
