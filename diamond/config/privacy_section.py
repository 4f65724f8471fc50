"""The table `privacy` of experiments and federations."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..algorithms.parts.private_method import private
from .components import Component
from .validation_errors import config_error

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PrivacySection(BaseModel):
    """Differential privacy of everything that a site sends, as of `diamond.private`.

    Attributes:
        epsilon: Budget of one row of a site, over all runs of the federation.
        delta: Probability with which the budget may not hold.
        clip: Largest norm of a direction; a number, or a table with x, y and z.
        clipping: "row", "whole", or "auto": by row if the method allows it.
        noise_multiplier: Noise relative to the sensitivity, instead of calibrated noise.
        rounds: Rounds that the noise is calibrated for; by default those of the file.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    epsilon: Positive = 8.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    clip: Positive | dict[Literal["x", "y", "z"], Positive] = 1.0
    clipping: Literal["auto", "row", "whole"] = "auto"
    noise_multiplier: Positive | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None

    def as_table(self, rounds: int) -> dict[str, Any]:
        """Return the table in full, for a run of that many rounds."""
        return self.model_dump(exclude_none=True) | {"rounds": self.rounds or rounds}

    def protect(self, component: Component, rounds: int) -> Component:
        """Return the method as a private method; its name and options stay."""
        options = self.as_table(max(rounds, 1))
        try:
            algorithm = private(component.build(), **options)
        except ValueError as cause:
            raise config_error(str(cause), "privacy") from None
        return replace(component, build=lambda: algorithm)
