"""The names of the package: read by type checkers, and by `__init__.py`."""

from .lock import Busy as Busy
from .manifest import Origin as Origin
from .manifest import closing as closing
from .manifest import opening as opening
from .manifest import versions as versions
from .metrics import Metrics as Metrics
from .reader import Stored as Stored
from .reader import below as below
from .reader import open_run as open_run
from .reader import runs as runs
from .trajectory_digest import digest as digest
from .writer import Writer as Writer
