"""Errors of a call to a neighbour."""


class Unreachable(ConnectionError):
    """A neighbour that did not answer; it may be back soon."""


class Refused(PermissionError):
    """A neighbour that answered no; asking again is of no use."""


class Differs(Refused):
    """A neighbour that runs something else, as long as neither is started again."""


class Outdated(Refused):
    """A site that has an older roster than the asker; it will have the newer one soon."""


class Stopped(Refused):
    """A neighbour whose own run has failed for good, and so has everyone's."""
