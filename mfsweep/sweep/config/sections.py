"""The sections but ``grid`` and ``overrides``, in the file's order, and the keys of each."""

import math
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from mfsweep.sweep.config.refusals import refuse
from mfsweep.sweep.config.values import (
    LISTED,
    Distinct,
    Positive,
    Section,
    Seed,
    one_of,
    real,
    says,
)

Bulk = Literal["isotropic", "linear"]
Distribution = Literal["uniform", "vmf", "mixture", "file"]
Sampling = Literal["iid", "antipodal", "qmc", "equispaced"]
Method = Literal["dopri5", "bs32", "euler", "rk4"]
FIXED_STEP = ("euler", "rk4")
MOST_COMPONENTS = 20
Dtype = Literal["float64", "float32"]
Format = Literal["png", "pdf"]
Scale = Literal["raw", "unit"]


class _Drawn(Section):
    """What the families share whose weights are drawn, not given."""

    weights_seed: Seed = 0
    multiplicity: Annotated[int, *says("must be a whole number from 1 to d - 1", ge=1, lt=4096)] = 1
    bulk: Annotated[Bulk, *one_of(Bulk)] = "isotropic"


class Identity(_Drawn):
    """B = I: the control, in which nothing switches."""

    kind: Literal["identity"]


class Aligned(_Drawn):
    """B in the eigenbasis of A: b[0] on the dominant eigenspace, b[1] elsewhere."""

    kind: Literal["aligned"]
    b: Annotated[tuple[Positive, Positive], LISTED, *says("must be a list of two numbers > 0")] = (
        2.0,
        0.5,
    )


class Generic(_Drawn):
    """B symmetric positive definite in an eigenbasis of its own."""

    kind: Literal["generic"]
    condition: Annotated[float, *real("must be >= 1 and finite", ge=1, allow_inf_nan=False)] = 10.0


def _npz_path(value: object, info: ValidationInfo) -> Path:
    """Resolve against the config's folder (the working directory if no file was read)."""
    if not isinstance(value, str | Path):
        refuse("must be the path of an .npz file")
    path = Path((info.context or {}).get("folder", ""), value).absolute()
    try:
        there = path.suffix == ".npz" and path.is_file()
    except OSError:  # a name too long, a folder that may not be searched
        there = False
    if not there:
        refuse(
            "must be an existing .npz file, relative to the config's folder or absolute",
            "correct the path or write the file with numpy.savez",
        )
    return path


class File(Section):
    """Matrices from disk, whose d and gap are measured."""

    kind: Literal["file"]
    path: Annotated[Path, BeforeValidator(_npz_path, json_schema_input_type=str)]
    span: Annotated[int, *says("must be a whole number from 2 to 4096", ge=2, le=4096)] | None = (
        None
    )
    scale: Annotated[Scale, *one_of(Scale)] = "raw"


def _of_a_kind(value: object) -> object:
    kinds = ("identity", "aligned", "generic", "file")
    if not isinstance(value, dict):
        refuse("must be a mapping with a kind", "write {kind: identity} or the like")
    if value.get("kind") not in kinds:
        refuse(f"must be one of {', '.join(kinds)}", "set it", "kind", got=value.get("kind"))
    return value


Family = Annotated[
    Identity | Aligned | Generic | File, Field(discriminator="kind"), BeforeValidator(_of_a_kind)
]


Tilt = Annotated[float, *real("must be an angle from 0 to pi (radians)", ge=0, le=math.pi)]


class Component(Section):
    """A part of a mixture: von Mises-Fisher, uniform at kappa = 0."""

    weight: Positive = 1.0
    kappa: Annotated[float, *real("must be >= 0 and finite", ge=0, allow_inf_nan=False)]
    tilt: Tilt = 0.0


def _component_list(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) > MOST_COMPONENTS:
        refuse(f"must be a list of at most {MOST_COMPONENTS} components")
    return tuple(value)


_NEEDS = {"vmf": {"kappa", "tilt"}, "mixture": {"components"}, "file": {"path"}}
"""Keys that a distribution must have and no other may."""

_SAMPLINGS = {"vmf": ("iid", "qmc", "equispaced"), "mixture": ("iid",), "file": ("iid",)}
"""Samplings of the distributions that do not have them all."""


class Initial(Section):
    """How the tokens start."""

    distribution: Annotated[Distribution, *one_of(Distribution)] = "uniform"
    sampling: Annotated[Sampling, *one_of(Sampling)] = "iid"
    kappa: Positive | None = None
    tilt: Tilt | None = None
    components: Annotated[tuple[Component, ...], BeforeValidator(_component_list)] = ()
    path: Annotated[Path, BeforeValidator(_npz_path, json_schema_input_type=str)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        needed = _NEEDS.get(self.distribution, set())
        for kind, keys in _NEEDS.items():
            for key in sorted(keys):
                value = getattr(self, key)
                if key in needed and value in (None, ()):
                    allowed = f"required key is missing where distribution is {kind}"
                    refuse(allowed, "add it", key)
                if key not in needed and value not in (None, ()):
                    refuse(
                        f"is for distribution {kind} only",
                        f"remove it or set {kind}",
                        key,
                        got=value,
                    )
        known = _SAMPLINGS.get(self.distribution, get_args(Sampling))
        if self.sampling not in known:
            allowed = f"must be {' or '.join(known)} where distribution is {self.distribution}"
            refuse(allowed, "set iid", "sampling", got=self.sampling)
        return self


class Time(Section):
    """The saved times, evenly spaced from 0 to t_end (dimensionless)."""

    t_end: Positive
    n_times: Annotated[int, *says("must be a whole number from 2 to 100,000", ge=2, le=100_000)]


class Solver(Section):
    """The Runge-Kutta method, its tolerances or its step, when tokens move as one; the mesh."""

    method: Annotated[Method, *one_of(Method)] = "dopri5"
    rtol: Annotated[float, *real("must be from 1e-12 to 0.1", ge=1e-12, le=0.1)] = 1e-6
    atol: Annotated[float, *real("must be from 0 to 0.1", ge=0, le=0.1)] = 1e-9
    step: Positive | None = None
    merge_radius: Annotated[float, *real("must be from 0 to 0.01", ge=0, le=0.01)] = 1e-6
    resolution: Annotated[float, *real("must be > 0 and at most 1", gt=0, le=1)] = 0.5

    @model_validator(mode="after")
    def _fits(self) -> Self:
        fixed = self.method in FIXED_STEP
        if fixed and self.step is None:
            refuse(f"required key is missing where method is {self.method}", "add it", "step")
        if not fixed and self.step is not None:
            refuse("is for methods euler and rk4 only", "remove it", "step", got=self.step)
        return self


class Store(Section):
    """How tokens are stored."""

    dtype: Annotated[Dtype, *one_of(Dtype)] = "float64"


class Laws(Section):
    """What a cell must satisfy to count as resolved."""

    ess_threshold: Annotated[float, *real("must be >= 0 and finite", ge=0, allow_inf_nan=False)] = (
        25.0
    )


class Figures(Section):
    """The files that each figure is written to."""

    formats: Distinct[Annotated[Format, *one_of(Format)]] = ("png", "pdf")
    dpi: Annotated[int, *says("must be a whole number from 50 to 600", ge=50, le=600)] = 150
