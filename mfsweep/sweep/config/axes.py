"""The keys ``grid`` and ``overrides``: the lists that the sweep runs over."""

from decimal import Context, Decimal, localcontext
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from mfsweep.sweep.config.refusals import refuse
from mfsweep.sweep.config.values import (
    LISTED,
    MAX_VALUES,
    Ascending,
    Beta,
    Dimension,
    Distinct,
    Gap,
    Label,
    OneOrMany,
    Positive,
    Section,
    Seed,
    TokenCount,
    says,
)

_TWELVE, _THIRTY = Context(prec=12), Context(prec=30)
_RISING = f"0 < low < high, both finite, count from 2 to {MAX_VALUES:,}"


def _rising(values: tuple[float, float, int]) -> tuple[float, float, int]:
    if values[0] >= values[1]:
        raise ValueError(values)
    return values


class Geom(Section):
    """Betas in geometric progression."""

    geom: Annotated[
        tuple[Positive, Positive, Annotated[int, Field(ge=2, le=MAX_VALUES)]],
        AfterValidator(_rising),
        LISTED,
        *says(f"must be [low, high, count], {_RISING}"),
    ]

    def values(self) -> tuple[float, ...]:
        """Return low (high/low)^(i/(count-1)), i = 0..count-1, to 12 significant digits.

        Computed with 40 decimal digits and cut to 30 first, so that the roundoff of the power
        never decides the last digit: a progression that is made longer at the same ratio repeats
        its old values to the bit.

        Examples
        --------
        >>> Geom(geom=(8, 512, 7)).values()
        (8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
        """
        count = self.geom[2]
        with localcontext(prec=40):
            low, high = (Decimal(repr(end)) for end in self.geom[:2])
            exact = [low * (high / low) ** (Decimal(i) / (count - 1)) for i in range(count)]
        return tuple(float(_TWELVE.plus(_THIRTY.plus(value))) for value in exact)


def _progression(value: object) -> object:
    """Write {geom: [low, high, count]} out as a list."""
    if not isinstance(value, dict):
        return value
    try:
        return Geom.model_validate(value).values()
    except ValidationError:
        refuse(f"must be a list or {{geom: [low, high, count]}}, {_RISING}")


def _counted(value: object) -> object:
    """Write a count k out as the list 0..k-1."""
    if isinstance(value, list | tuple):
        return value
    if type(value) is not int or not 1 <= value <= MAX_VALUES:
        refuse(f"must be a count from 1 to {MAX_VALUES:,} or a list of seeds")
    return tuple(range(value))


_Count = Annotated[int, Field(ge=1, le=MAX_VALUES)]
Betas = Annotated[
    Ascending[Beta],
    BeforeValidator(_progression, json_schema_input_type=Ascending[Beta] | Geom),
]
Seeds = Annotated[
    Ascending[Seed],
    BeforeValidator(_counted, json_schema_input_type=_Count | Ascending[Seed]),
]


class Grid(Section):
    """The product that the sweep runs over; numeric lists are held in ascending order."""

    family: Distinct[Label]
    d: Ascending[Dimension]
    gap: Ascending[Gap]
    n_tokens: Ascending[TokenCount]
    beta: Betas
    seed: Seeds

    def axes(self) -> dict[str, tuple[Any, ...]]:
        """Return the numeric lists by key."""
        return {key: values for key, values in self if key != "family"}


class Override(Section):
    """Other values for a part of the grid.

    A scalar family, d or gap selects the part; a list under any other key, or of d or gap,
    replaces the grid's list there. The last override that selects a point and gives a key decides.
    """

    family: Label | None = None
    d: OneOrMany[Dimension] | None = None
    gap: OneOrMany[Gap] | None = None
    n_tokens: Ascending[TokenCount] | None = None
    beta: Betas | None = None
    seed: Seeds | None = None

    def selects(self, family: str, d: int | None, gap: float | None) -> bool:
        """Tell whether a point lies in the part that the scalar keys name."""
        wanted = ((self.family, family), (self.d, d), (self.gap, gap))
        return all(key is None or isinstance(key, tuple) or key == at for key, at in wanted)

    def lists(self) -> dict[str, tuple[Any, ...]]:
        """Return the lists that hold in that part, by key."""
        return {key: value for key, value in self if isinstance(value, tuple)}
