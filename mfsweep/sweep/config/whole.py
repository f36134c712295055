"""A whole config, and what its keys ask for together."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from mfsweep.sweep.config.axes import Grid, Override
from mfsweep.sweep.config.patterns import expanded
from mfsweep.sweep.config.refusals import refuse
from mfsweep.sweep.config.sections import (
    Family,
    Figures,
    File,
    Initial,
    Laws,
    Solver,
    Store,
    Time,
)
from mfsweep.sweep.config.values import Label, Name, Section

_MAX_SHARDS = 100_000
_MAX_CELLS = 1_000_000
_MAX_OVERRIDES = 100


def _mapping(value: object) -> dict[object, object]:
    if not isinstance(value, dict):
        refuse("must be a mapping of labels to families", "write label: {kind: identity}")
    return value


def _override_list(value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple) or len(value) > _MAX_OVERRIDES:
        refuse(f"must be a list of at most {_MAX_OVERRIDES} overrides", "shorten it")
    return tuple(value)


@dataclass(frozen=True)
class Part:
    """One (family, d, gap) and what is asked of it; a file's d and gap are yet to be measured."""

    family: str
    d: int | None
    gap: float | None
    n_tokens: tuple[float, ...]
    beta: tuple[float, ...]
    seed: tuple[int, ...]

    def seeds(self, n_tokens: float) -> tuple[int, ...]:
        """Return the seeds of one n_tokens: the first for the continuum, which draws nothing."""
        return self.seed[:1] if math.isinf(n_tokens) else self.seed


class Config(Section):
    """A whole sweep, as its config file describes it."""

    run: Name
    grid: Grid
    families: Annotated[dict[Label, Family], BeforeValidator(_mapping)]
    overrides: Annotated[tuple[Override, ...], BeforeValidator(_override_list)] = ()
    initial: Initial = Field(default_factory=Initial)
    time: Time
    solver: Solver = Field(default_factory=Solver)
    store: Store = Field(default_factory=Store)
    laws: Laws = Field(default_factory=Laws)
    figures: Figures = Field(default_factory=Figures)

    @model_validator(mode="before")
    @classmethod
    def _patterns(cls, data: object, info: ValidationInfo) -> object:
        return expanded(data, Path((info.context or {}).get("folder", "")))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        grid = self.grid
        _check_names(self)
        points = len(grid.family) * len(grid.d) * len(grid.gap)
        _check_size(grid, points, "shards or more", _MAX_SHARDS)
        parts, changing = _narrowed(self)
        _check_overrides(self, parts, changing)
        shards = sum(len(part.n_tokens) for part in parts)
        cells = sum(len(part.beta) * len(part.seeds(n)) for part in parts for n in part.n_tokens)
        _check_size(grid, shards, "shards", _MAX_SHARDS)
        _check_size(grid, cells, "cells", _MAX_CELLS)
        for part in parts:
            _check_part(self, part)
        return self

    def parts(self) -> tuple[Part, ...]:
        """Return what is asked of each (family, d, gap), overrides applied, in grid order."""
        return _narrowed(self)[0]


def _points(config: Config) -> Iterator[tuple[str, int | None, float | None]]:
    for family in config.grid.family:
        if isinstance(config.families[family], File):
            yield family, None, None
        else:
            yield from product((family,), config.grid.d, config.grid.gap)


def _narrowed(config: Config) -> tuple[tuple[Part, ...], set[int]]:
    """Return the parts and the indices of the overrides that change one."""
    lists = [override.lists() for override in config.overrides]
    parts, changing = [], set()
    for family, d, gap in _points(config):
        asked = config.grid.axes()
        if d is None:
            del asked["d"], asked["gap"]
        for i, override in enumerate(config.overrides):
            if override.selects(family, d, gap):
                new = {key: lists[i][key] for key in asked.keys() & lists[i].keys()}
                if asked | new != asked:
                    changing.add(i)
                asked |= new
        if d in asked.pop("d", (None,)) and gap in asked.pop("gap", (None,)):
            parts.append(Part(family, d, gap, **asked))
    return tuple(parts), changing


def _check_names(config: Config) -> None:
    grid = config.grid
    for i, label in enumerate(grid.family):
        if label not in config.families:
            remedy = f"define families.{label} or remove it from grid.family"
            refuse("must be defined under families", remedy, "grid", "family", i, got=label)
    for i, override in enumerate(config.overrides):
        for key in ("family", "d", "gap"):
            value = getattr(override, key)
            for one in value if isinstance(value, tuple) else (value,):
                if one is not None and one not in getattr(grid, key):
                    remedy = f"correct it or add it to grid.{key}"
                    refuse(f"must be in grid.{key}", remedy, "overrides", i, key, got=one)


def _check_size(grid: Grid, count: int, what: str, limit: int) -> None:
    if count > limit:
        axis, values = max(grid.axes().items(), key=lambda item: len(item[1]))
        remedy = f"shorten grid.{axis} ({len(values):,} values) or split the run"
        refuse(f"asks for {count:,} {what}, at most {limit:,} fit", remedy, "grid")


def _check_overrides(config: Config, parts: tuple[Part, ...], changing: set[int]) -> None:
    for i in range(len(config.overrides)):
        if i not in changing:
            remedy = "correct its keys or remove it"
            refuse("changes nothing in the grid", remedy, "overrides", i)
    if not parts:
        refuse("leave nothing of the grid", "remove one of them", "overrides")


def _check_part(config: Config, part: Part) -> None:
    family = config.families[part.family]
    if not isinstance(family, File) and part.d is not None and family.multiplicity >= part.d:
        at = ("families", part.family, "multiplicity")
        remedy = "lower it or narrow d by an override"
        refuse(f"must be < d, here {part.d}", remedy, *at, got=family.multiplicity)
    sampling, start = config.initial.sampling, ("initial", "sampling")
    if math.inf in part.n_tokens:
        _check_continuum(config, part)
    for n in part.n_tokens:
        if sampling == "antipodal" and math.isfinite(n) and n % 2:
            allowed = f"antipodal needs even n_tokens, {part.family} has {n:.0f}"
            refuse(allowed, "make it even or set iid", *start, got=sampling)
    if sampling == "equispaced" and part.d not in (None, 2):
        allowed = f"equispaced needs d = 2, {part.family} has {part.d}"
        refuse(allowed, "set iid or qmc, or keep d = 2 only", *start, got=sampling)


def _check_continuum(config: Config, part: Part) -> None:
    """Refuse the continuum where there is no circle or no density."""
    at = ("grid", "n_tokens")
    if part.d not in (None, 2):
        allowed = f"the continuum needs d = 2, {part.family} has {part.d}"
        remedy = "keep d = 2 only, or ask for it by an override with d: 2"
        refuse(allowed, remedy, *at, got=math.inf)
    if config.initial.distribution == "file":
        allowed = "the continuum needs a density, a file of tokens has none"
        remedy = "remove it, or set initial.distribution to uniform, vmf or mixture"
        refuse(allowed, remedy, *at, got=math.inf)
