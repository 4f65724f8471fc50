"""Step sizes and momentum weights as functions of the round t; deferred and learned numbers."""

from ..core.pytrees import Number as Number
from .step_schedules import AtLeast as AtLeast
from .step_schedules import Constant as Constant
from .step_schedules import Custom as Custom
from .step_schedules import Power as Power
from .step_schedules import Ramp as Ramp
from .step_schedules import Scaled as Scaled
from .step_schedules import Schedule as Schedule
from .step_schedules import Squared as Squared
from .step_schedules import bsa as bsa
from .step_schedules import constant as constant
from .step_schedules import paper as paper
from .step_schedules import power as power
from .step_schedules import ramp as ramp
from .step_schedules import scaled as scaled
from .step_schedules import schedule as schedule
from .step_schedules import squared as squared
from .step_schedules import step_size as step_size
from .step_schedules import ttsa as ttsa
from .step_schedules import weight as weight
