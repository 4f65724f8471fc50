"""PyTorch models as pytrees and JAX functions, and their data as rows; needs the extra `torch`."""

from .dataset_rows import rows as rows
from .dataset_rows import stream as stream
from .module_function import function as function
from .module_function import functional as functional
from .module_function import state_dict as state_dict
