"""A measured figure with its interval."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over items, and how sure it is.

    Attributes:
        value: The mean; None where no item has this measure.
        low: Lower end of the 95 % interval; None where there is no value.
        high: Upper end.
        num_items: Items that the mean is over.
    """

    value: float | None
    low: float | None
    high: float | None
    num_items: int

    def to_dict(self) -> dict[str, Any]:
        """Returns the figure as plain data, rounded to six places."""
        return {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }
