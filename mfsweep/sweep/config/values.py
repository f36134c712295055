"""What one value may be: numbers, names, lists and mappings."""

import difflib
import math
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    WrapValidator,
    model_validator,
)

from mfsweep.sweep.config.refusals import refuse

MAX_VALUES = 10_000
_T = TypeVar("_T")


def says(allowed: str, **bounds: Any) -> tuple[object, ...]:
    """Bound a value, and refuse it by the sentence that says what is allowed."""

    def check(value: object, within: Callable[[object], Any]) -> Any:
        try:
            return within(value)
        except ValidationError:
            refuse(allowed)

    return Field(description=allowed, **bounds), WrapValidator(check)


def real(allowed: str, **bounds: Any) -> tuple[object, ...]:
    """Like `says`, for a number that may be given as text, since YAML reads ``1e-3`` as text."""
    field, check = says(allowed, **bounds)
    return field, BeforeValidator(_number), check


def _number(value: object) -> object:
    """Read a number given as text; one too large for a float is none."""
    if not isinstance(value, str):
        return value
    number = float(value)
    if math.isinf(number) and "inf" not in value.lower():
        raise ValueError(value)
    return number


def one_of(choice: object) -> tuple[object, ...]:
    """Say which names a `Literal` holds."""
    return says(f"must be one of {', '.join(get_args(choice))}")


Name = Annotated[
    str,
    *says(
        "must be 1 to 64 letters, digits, _ or -, the first a letter or digit",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$",
    ),
]
Label = Annotated[
    str,
    *says(
        "every family label must be 1 to 32 letters, digits, _ or -, the first a letter",
        pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$",
    ),
]
Dimension = Annotated[int, *says("every d must be a whole number from 2 to 4096", ge=2, le=4096)]
Gap = Annotated[float, *real("every gap must be > 0 and < 1", gt=0, lt=1)]
_MAX_TOKENS = 10_000_000


def _counted_or_endless(value: float) -> float:
    """Refuse a number of tokens that is neither whole and in range nor infinite."""
    if not (math.isinf(value) or (value <= _MAX_TOKENS and value.is_integer())):
        raise ValueError(value)
    return value


_ENDLESS = {"exclusiveMinimum": sys.float_info.max}
_COUNTED = {"minimum": 2, "maximum": _MAX_TOKENS, "multipleOf": 1}
TokenCount = Annotated[
    float,
    AfterValidator(_counted_or_endless),
    Field(json_schema_extra={"anyOf": [_COUNTED, _ENDLESS]}),
    *real(
        f"every n_tokens must be a whole number from 2 to {_MAX_TOKENS:,}, or .inf (the continuum)",
        ge=2,
    ),
]
Beta = Annotated[float, *real("every beta must be > 0 (or .inf)", gt=0)]
Seed = Annotated[
    int, *says("every seed must be a whole number from 0 to 2**32 - 1", ge=0, lt=2**32)
]
Positive = Annotated[float, *real("must be > 0 and finite", gt=0, allow_inf_nan=False)]


def significant(value: float) -> float:
    """Round to 12 significant decimal digits.

    Examples
    --------
    >>> significant(15.999999999999998)
    16.0
    """
    return float(f"{value:.12g}")


def _listed(value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        refuse("must be a list", "write it in brackets")
    if not 1 <= len(value) <= MAX_VALUES:
        refuse(f"must hold 1 to {MAX_VALUES:,} values", "fill or shorten it")
    return tuple(value)


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    first: dict[object, int] = {}
    for i, value in enumerate(values):
        if first.setdefault(value, i) != i:
            refuse(f"repeats item [{first[value]}]", "remove one of them", i, got=value)
    return values


def _ascending(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(_distinct(values)))


def _shape(value: object) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<one>"


LISTED = BeforeValidator(_listed)
_SET = Field(json_schema_extra={"minItems": 1, "maxItems": MAX_VALUES, "uniqueItems": True})
Distinct = Annotated[tuple[_T, ...], _SET, AfterValidator(_distinct), LISTED]
Ascending = Annotated[tuple[_T, ...], _SET, AfterValidator(_ascending), LISTED]
OneOrMany = Annotated[
    Annotated[_T, Tag("<one>")] | Annotated[Ascending[_T], Tag("<list>")], Discriminator(_shape)
]


def _absent_not_null(schema: dict[str, Any]) -> None:
    """Let the JSON schema say of optional keys what `Section` does: absent, never null."""
    for entry in schema["properties"].values():
        if entry.get("default", ...) is None:
            del entry["default"]
            entry |= entry.pop("anyOf")[0]


class Section(BaseModel):
    """A mapping whose keys are all known and all have a value."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra=_absent_not_null,
        ser_json_inf_nan="strings",
    )

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, data: object) -> object:
        known = list(cls.model_fields)
        if not isinstance(data, dict):
            refuse(f"must be a mapping with keys {', '.join(known)}", "write key: value")
        for key, value in data.items():
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                remedy = f"did you mean {near[0]}?" if near else "remove it"
                refuse(f"unknown key, allowed: {', '.join(known)}", remedy, key, got=value)
            if value is None:
                refuse("must have a value", "give it one or remove the key", key, got=None)
        for key, field in cls.model_fields.items():
            if field.is_required() and key not in data:
                refuse("required key is missing", "add it", key)
        return data
