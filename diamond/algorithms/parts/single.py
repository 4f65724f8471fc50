"""What methods of one stage of their own have in common."""

from dataclasses import replace
from typing import Any, ClassVar

from ...hypergradient.conditioning import smallest
from ...numbers.open_numbers import Deferred, Found, Setting
from ...numbers.schedule import Number, Scaled


class Single:
    """A round is one stage, the method itself, taken once; it tells what it has computed."""

    times: ClassVar[int] = 1
    links: ClassVar[int] = 0
    early: ClassVar[bool] = False
    STEPS: ClassVar[tuple[str, ...]] = ("alpha", "beta")  # schedules among its fields
    networks: ClassVar[str] = "balanced"  # the widest kind it is right on
    about: ClassVar[str]  # directions; estimator; moves; plan; exchanges; calls

    @property
    def stages(self) -> tuple[Any, ...]:
        return (self,)

    def numbers(self, t: Number) -> dict[str, Number]:
        return {name: getattr(self, name)(t) for name in self.STEPS}

    def shrunk(self, factor: Number) -> Any:
        """The method with steps `factor` times as long."""
        steps = {name: Scaled(factor, getattr(self, name)) for name in ("alpha", "beta")}
        return replace(self, **steps)  # type: ignore[type-var]


def _floor(setting: Setting) -> Found:
    return Found(smallest(setting) / 2)


floor = Deferred("floor", _floor)  # of the eigenvalues of an estimated g_yy: half of mu
