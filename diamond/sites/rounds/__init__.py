"""Rounds of a site: what it computes, with whom it exchanges messages, and whom it awaits."""
