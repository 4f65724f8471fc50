"""A federation of three sites, for the commands of `diamond net`."""

from federations import command, trial

__all__ = ["command", "trial"]
