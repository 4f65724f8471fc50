"""Advice: measure a problem on its network and say which method to prefer."""
