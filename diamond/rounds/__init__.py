"""A round as one agent sees it: what algorithms say, and engine run."""
