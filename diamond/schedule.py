"""Step sizes and momentum weights as functions of the round t."""

from .numbers.schedule import AtLeast as AtLeast
from .numbers.schedule import Constant as Constant
from .numbers.schedule import Custom as Custom
from .numbers.schedule import Number as Number
from .numbers.schedule import Power as Power
from .numbers.schedule import Ramp as Ramp
from .numbers.schedule import Scaled as Scaled
from .numbers.schedule import Schedule as Schedule
from .numbers.schedule import Squared as Squared
from .numbers.schedule import bsa as bsa
from .numbers.schedule import constant as constant
from .numbers.schedule import paper as paper
from .numbers.schedule import power as power
from .numbers.schedule import ramp as ramp
from .numbers.schedule import scaled as scaled
from .numbers.schedule import schedule as schedule
from .numbers.schedule import squared as squared
from .numbers.schedule import step_size as step_size
from .numbers.schedule import ttsa as ttsa
from .numbers.schedule import weight as weight
