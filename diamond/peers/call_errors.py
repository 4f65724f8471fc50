"""Errors of a call to a neighbour."""


class Unreachable(ConnectionError):
    """Error: a neighbour did not respond, but may be back soon."""


class Refused(PermissionError):
    """Error: a neighbour refused; retrying is useless."""


class RunMismatch(Refused):
    """Error: a neighbour runs something else, until one of the two is restarted."""


class OutdatedRoster(Refused):
    """Error: a site has an older roster than the caller, and will have the newer one soon."""


class RunFailed(Refused):
    """Error: the run of a neighbour has failed for good, and so the whole run."""
