"""The names of the package: read by type checkers, and by `__init__.py`."""

from .folder_lock import FolderBusy as FolderBusy
from .folder_reader import StoredRun as StoredRun
from .folder_reader import find_runs as find_runs
from .folder_reader import open_run as open_run
from .folder_reader import open_runs as open_runs
from .folder_writer import Writer as Writer
from .manifest import RunOrigin as RunOrigin
from .manifest import final_fields as final_fields
from .manifest import initial_manifest as initial_manifest
from .manifest import package_versions as package_versions
from .metrics_file import MetricsFile as MetricsFile
from .trajectory_digest import digest_trajectory as digest_trajectory
