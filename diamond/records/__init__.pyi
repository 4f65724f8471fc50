"""The names of the package: read by type checkers, and by `__init__.py`."""

from .folder_lock import Busy as Busy
from .folder_reader import Stored as Stored
from .folder_reader import below as below
from .folder_reader import open_run as open_run
from .folder_reader import runs as runs
from .folder_writer import Writer as Writer
from .manifest import Origin as Origin
from .manifest import closing as closing
from .manifest import opening as opening
from .manifest import versions as versions
from .metrics_file import Metrics as Metrics
from .trajectory_digest import digest as digest
