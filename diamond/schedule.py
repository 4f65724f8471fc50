"""Step sizes and momentum weights as functions of the round t."""

from .core.pytrees import Number as Number
from .schedules.step_schedules import AtLeast as AtLeast
from .schedules.step_schedules import Constant as Constant
from .schedules.step_schedules import Custom as Custom
from .schedules.step_schedules import Power as Power
from .schedules.step_schedules import Ramp as Ramp
from .schedules.step_schedules import Scaled as Scaled
from .schedules.step_schedules import Schedule as Schedule
from .schedules.step_schedules import Squared as Squared
from .schedules.step_schedules import bsa as bsa
from .schedules.step_schedules import constant as constant
from .schedules.step_schedules import paper as paper
from .schedules.step_schedules import power as power
from .schedules.step_schedules import ramp as ramp
from .schedules.step_schedules import scaled as scaled
from .schedules.step_schedules import schedule as schedule
from .schedules.step_schedules import squared as squared
from .schedules.step_schedules import step_size as step_size
from .schedules.step_schedules import ttsa as ttsa
from .schedules.step_schedules import weight as weight
