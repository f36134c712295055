"""The config file: frozen strict models, read from YAML, each mistake refused in one line.

``config/README.md`` holds every key's type, unit, default and meaning; ``config_schema`` is the
same contract as JSON schema. A number may be given as text where a fraction is allowed, since
YAML reads ``1e-3`` as text.
"""

import difflib
import math
import os
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from mfsweep._errors import InputError

MAX_VALUES = 10_000
MAX_SHARDS = 100_000
MAX_CELLS = 1_000_000
MAX_OVERRIDES = 100
_MAX_BYTES = 1_000_000
_MAX_SCALAR = 1_000
_MAX_LINE = 300
_MISSING = object()
_TWELVE, _THIRTY = Context(prec=12), Context(prec=30)
_UNREADABLE = (  # what PyYAML raises on text it cannot read
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


# ---- what one value may be -----------------------------------------------------------------


def _refuse(allowed: str, remedy: str = "", *at: object, **got: object) -> NoReturn:
    """Refuse the value under validation, or `got` that lies in it at the keys `at`."""
    context = {"allowed": allowed, "remedy": remedy, "at": at, **got}
    error = PydanticCustomError("refused", "{allowed}", context)
    raise error


@dataclass(frozen=True)
class _Says:
    """Put whatever is wrong with one value as the sentence that says what is allowed."""

    allowed: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "description": self.allowed}

    def _check(self, value: Any, check: core_schema.ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError:
            _refuse(self.allowed)


def _number(value: object) -> object:
    """Read a number given as text; one too large for a float is none."""
    if not isinstance(value, str):
        return value
    number = float(value)
    if math.isinf(number) and "inf" not in value.lower():
        _refuse("must fit in a float64")
    return number


def _listed(value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        _refuse("must be a list", "write it in brackets")
    if not 1 <= len(value) <= MAX_VALUES:
        _refuse(f"must hold 1 to {MAX_VALUES:,} values", "fill or shorten it")
    return tuple(value)


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    first: dict[object, int] = {}
    for i, value in enumerate(values):
        if first.setdefault(value, i) != i:
            _refuse(f"repeats item [{first[value]}]", "remove one of them", i, got=value)
    return values


def _ascending(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(_distinct(values)))


_RISING = f"0 < low < high, both finite, count from 2 to {MAX_VALUES:,}"


def _rising(values: tuple[float, float, int]) -> tuple[float, float, int]:
    if values[0] >= values[1]:
        _refuse("must have low < high")
    return values


def _whole(says: str, **bounds: Any) -> tuple[object, ...]:
    return Field(**bounds), _Says(says)


def _real(says: str, **bounds: Any) -> tuple[object, ...]:
    return Field(**bounds), BeforeValidator(_number), _Says(says)


def _one_of(*names: str) -> _Says:
    return _Says(f"must be one of {', '.join(names)}")


_LIST = BeforeValidator(_listed)
_SET = Field(json_schema_extra={"minItems": 1, "maxItems": MAX_VALUES, "uniqueItems": True})

Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"),
    _Says("must be 1 to 64 letters, digits, _ or -, the first a letter or digit"),
]
Label = Annotated[
    str,
    Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$"),
    _Says("every family label must be 1 to 32 letters, digits, _ or -, the first a letter"),
]
Dimension = Annotated[int, *_whole("every d must be a whole number from 2 to 4096", ge=2, le=4096)]
Gap = Annotated[float, *_real("every gap must be > 0 and < 1", gt=0, lt=1)]
_TOKENS = "every n_tokens must be a whole number from 2 to 10,000,000 (no solver for .inf as yet)"
TokenCount = Annotated[float, *_real(_TOKENS, ge=2, le=10_000_000, multiple_of=1)]
Beta = Annotated[float, *_real("every beta must be > 0 (or .inf)", gt=0)]
_SEEDS = "every seed must be a whole number from 0 to 2**32 - 1"
Seed = Annotated[int, *_whole(_SEEDS, ge=0, lt=2**32)]
Count = Annotated[int, Field(ge=1, le=MAX_VALUES)]
Positive = Annotated[float, *_real("must be > 0 and finite", gt=0, allow_inf_nan=False)]


# ---- sections ------------------------------------------------------------------------------


def _absent_not_null(schema: dict[str, Any]) -> None:
    """Let the JSON schema say of optional keys what `Section` does: absent, never null."""
    for entry in schema["properties"].values():
        if entry.get("default", ...) is None:
            del entry["default"]
            entry |= entry.pop("anyOf")[0]


class Section(BaseModel):
    """A mapping whose keys are all known and all have a value."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, json_schema_extra=_absent_not_null
    )

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, data: object) -> object:
        known = list(cls.model_fields)
        if not isinstance(data, dict):
            _refuse(f"must be a mapping with keys {', '.join(known)}", "write key: value")
        for key, value in data.items():
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                remedy = f"did you mean {near[0]}?" if near else "remove it"
                _refuse(f"unknown key, allowed: {', '.join(known)}", remedy, key, got=value)
            if value is None:
                _refuse("must have a value", "give it one or remove the key", key, got=None)
        for key, field in cls.model_fields.items():
            if field.is_required() and key not in data:
                _refuse("required key is missing", "add it", key)
        return data


class Geom(Section):
    """Betas in geometric progression."""

    geom: Annotated[
        tuple[Positive, Positive, Annotated[int, Field(ge=2, le=MAX_VALUES)]],
        AfterValidator(_rising),
        _LIST,
        _Says(f"must be [low, high, count], {_RISING}"),
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


def significant(value: float) -> float:
    """Round to 12 significant decimal digits.

    Examples
    --------
    >>> significant(15.999999999999998)
    16.0
    """
    return float(f"{value:.12g}")


def _progression(value: object) -> object:
    """Write {geom: [low, high, count]} out as a list."""
    if not isinstance(value, dict):
        return value
    try:
        return Geom.model_validate(value).values()
    except ValidationError:
        _refuse(f"must be a list or {{geom: [low, high, count]}}, {_RISING}")


def _counted(value: object) -> object:
    """Write a count k out as the list 0..k-1."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_VALUES:
        return tuple(range(value))
    if isinstance(value, list | tuple):
        return value
    _refuse(f"must be a count from 1 to {MAX_VALUES:,} or a list of seeds")


def _of_a_kind(value: object) -> object:
    kinds = ("identity", "aligned", "generic", "file")
    if not isinstance(value, dict):
        _refuse("must be a mapping with a kind", "write {kind: identity} or the like")
    if value.get("kind") not in kinds:
        _refuse(f"must be one of {', '.join(kinds)}", "set it", "kind", got=value.get("kind"))
    return value


def _mapping(value: object) -> dict[object, object]:
    if not isinstance(value, dict):
        _refuse("must be a mapping of labels to families", "write label: {kind: identity}")
    return value


def _override_list(value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple) or len(value) > MAX_OVERRIDES:
        _refuse(f"must be a list of at most {MAX_OVERRIDES} overrides", "shorten it")
    return tuple(value)


def _weights_path(value: object, info: ValidationInfo) -> Path:
    """Resolve against the config's folder (the working directory if no file was read)."""
    if not isinstance(value, str | Path):
        _refuse("must be the path of an .npz file")
    path = Path((info.context or {}).get("folder", ""), value).absolute()
    try:
        there = path.suffix == ".npz" and path.is_file()
    except OSError:  # a name too long, a folder that may not be searched
        there = False
    if not there:
        _refuse(
            "must be an existing .npz file, relative to the config's folder or absolute",
            "correct the path or write the file with numpy.savez(path, V=V, B=B)",
        )
    return path


_BetaList = Annotated[tuple[Beta, ...], _SET, AfterValidator(_ascending), _LIST]
_SeedList = Annotated[tuple[Seed, ...], _SET, AfterValidator(_ascending), _LIST]
Labels = Annotated[tuple[Label, ...], _SET, AfterValidator(_distinct), _LIST]
Dimensions = Annotated[tuple[Dimension, ...], _SET, AfterValidator(_ascending), _LIST]
Gaps = Annotated[tuple[Gap, ...], _SET, AfterValidator(_ascending), _LIST]
TokenCounts = Annotated[tuple[TokenCount, ...], _SET, AfterValidator(_ascending), _LIST]
Betas = Annotated[_BetaList, BeforeValidator(_progression, json_schema_input_type=_BetaList | Geom)]
Seeds = Annotated[_SeedList, BeforeValidator(_counted, json_schema_input_type=Count | _SeedList)]


_MEASURED = {False: ("family",), True: ("family", "d", "gap")}


class Grid(Section):
    """The product that the sweep runs over; numeric lists are held in ascending order."""

    family: Labels
    d: Dimensions
    gap: Gaps
    n_tokens: TokenCounts
    beta: Betas
    seed: Seeds

    def axes(self, *, measured: bool = False) -> dict[str, tuple[Any, ...]]:
        """Return the numeric lists by key, without d and gap where a file's are measured."""
        return {key: values for key, values in self if key not in _MEASURED[measured]}


class _Drawn(Section):
    """What the families share whose weights are drawn, not given."""

    weights_seed: Seed = 0
    multiplicity: Annotated[
        int, *_whole("must be a whole number from 1 to d - 1", ge=1, lt=4096)
    ] = 1
    bulk: Annotated[Literal["isotropic", "linear"], _one_of("isotropic", "linear")] = "isotropic"


class Identity(_Drawn):
    """B = I: the control, in which nothing switches."""

    kind: Literal["identity"]


class Aligned(_Drawn):
    """B in the eigenbasis of A: b[0] on the dominant eigenspace, b[1] elsewhere."""

    kind: Literal["aligned"]
    b: Annotated[tuple[Positive, Positive], _LIST, _Says("must be a list of two numbers > 0")] = (
        2.0,
        0.5,
    )


class Generic(_Drawn):
    """B symmetric positive definite in an eigenbasis of its own."""

    kind: Literal["generic"]
    condition: Annotated[float, *_real("must be >= 1 and finite", ge=1, allow_inf_nan=False)] = 10.0


class File(Section):
    """Matrices from disk, whose d and gap are measured."""

    kind: Literal["file"]
    path: Annotated[Path, BeforeValidator(_weights_path, json_schema_input_type=str)]


Family = Annotated[
    Identity | Aligned | Generic | File, Field(discriminator="kind"), BeforeValidator(_of_a_kind)
]


def _shape(value: object) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<one>"


_ONE, _MANY, _SHAPE = Tag("<one>"), Tag("<list>"), Discriminator(_shape)
DimensionOrList = Annotated[Annotated[Dimension, _ONE] | Annotated[Dimensions, _MANY], _SHAPE]
GapOrList = Annotated[Annotated[Gap, _ONE] | Annotated[Gaps, _MANY], _SHAPE]


class Override(Section):
    """Other values for a part of the grid.

    A scalar family, d or gap selects the part; a list under any other key, or of d or gap,
    replaces the grid's list there. The last override that selects a point and gives a key decides.
    """

    family: Label | None = None
    d: DimensionOrList | None = None
    gap: GapOrList | None = None
    n_tokens: TokenCounts | None = None
    beta: Betas | None = None
    seed: Seeds | None = None

    def selects(self, family: str, d: int | None, gap: float | None) -> bool:
        """Tell whether a point lies in the part that the scalar keys name."""
        wanted = ((self.family, family), (self.d, d), (self.gap, gap))
        return all(key is None or isinstance(key, tuple) or key == at for key, at in wanted)

    def lists(self) -> dict[str, tuple[Any, ...]]:
        """Return the lists that hold in that part, by key."""
        return {key: value for key, value in self if isinstance(value, tuple)}


class Initial(Section):
    """How the tokens start."""

    distribution: Annotated[Literal["uniform", "vmf"], _one_of("uniform", "vmf")] = "uniform"
    sampling: Annotated[
        Literal["iid", "antipodal", "qmc", "equispaced"],
        _one_of("iid", "antipodal", "qmc", "equispaced"),
    ] = "iid"
    kappa: Positive | None = None
    tilt: (
        Annotated[float, *_real("must be an angle from 0 to pi (radians)", ge=0, le=math.pi)] | None
    ) = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        vmf = self.distribution == "vmf"
        for key, value in (("kappa", self.kappa), ("tilt", self.tilt)):
            if vmf and value is None:
                _refuse("required key is missing where distribution is vmf", "add it", key)
            if not vmf and value is not None:
                _refuse("is for distribution vmf only", "remove it or set vmf", key, got=value)
        if vmf and self.sampling != "iid":
            _refuse(
                "must be iid where distribution is vmf", "set iid", "sampling", got=self.sampling
            )
        return self


class Time(Section):
    """The saved times, evenly spaced from 0 to t_end (dimensionless)."""

    t_end: Positive
    n_times: Annotated[int, *_whole("must be a whole number from 2 to 100,000", ge=2, le=100_000)]


class Solver(Section):
    """The embedded Runge-Kutta pair and its tolerances for one step."""

    method: Annotated[Literal["dopri5", "bs32"], _one_of("dopri5", "bs32")] = "dopri5"
    rtol: Annotated[float, *_real("must be from 1e-12 to 0.1", ge=1e-12, le=0.1)] = 1e-6
    atol: Annotated[float, *_real("must be from 0 to 0.1", ge=0, le=0.1)] = 1e-9


class Store(Section):
    """How tokens are stored."""

    dtype: Annotated[Literal["float64", "float32"], _one_of("float64", "float32")] = "float64"


class Laws(Section):
    """What a cell must satisfy to count as resolved."""

    ess_threshold: Annotated[
        float, *_real("must be >= 0 and finite", ge=0, allow_inf_nan=False)
    ] = 25.0


class Figures(Section):
    """The files that each figure is written to."""

    formats: Annotated[
        tuple[Annotated[Literal["png", "pdf"], _one_of("png", "pdf")], ...],
        _SET,
        AfterValidator(_distinct),
        _LIST,
    ] = ("png", "pdf")
    dpi: Annotated[int, *_whole("must be a whole number from 50 to 600", ge=50, le=600)] = 150


@dataclass(frozen=True)
class Part:
    """One (family, d, gap) and what is asked of it; a file's d and gap are yet to be measured."""

    family: str
    d: int | None
    gap: float | None
    n_tokens: tuple[float, ...]
    beta: tuple[float, ...]
    seed: tuple[int, ...]


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

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_names(self)
        _check_sizes(self)
        for part in self.parts():
            _check_part(self, part)
        return self

    def parts(self) -> tuple[Part, ...]:
        """Return what is asked of each (family, d, gap), overrides applied, in grid order."""
        return _narrowed(self)[0]


# ---- what the keys ask for together --------------------------------------------------------


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
        grid = config.grid.axes(measured=d is None)
        asked: dict[str, Any] = {}
        for i, override in enumerate(config.overrides):
            if override.selects(family, d, gap):
                new = {axis: lists[i][axis] for axis in grid.keys() & lists[i].keys()}
                if any(asked.get(axis, grid[axis]) != new[axis] for axis in new):
                    changing.add(i)
                asked |= new
        if d in asked.get("d", (d,)) and gap in asked.get("gap", (gap,)):
            lasting = {axis: asked.get(axis, grid[axis]) for axis in ("n_tokens", "beta", "seed")}
            parts.append(Part(family, d, gap, **lasting))
    return tuple(parts), changing


def _check_names(config: Config) -> None:
    grid = config.grid
    for i, label in enumerate(grid.family):
        if label not in config.families:
            remedy = f"define families.{label} or remove it from grid.family"
            _refuse("must be defined under families", remedy, "grid", "family", i, got=label)
    for i, override in enumerate(config.overrides):
        for key in ("family", "d", "gap"):
            value = getattr(override, key)
            for one in value if isinstance(value, tuple) else (value,):
                if one is not None and one not in getattr(grid, key):
                    remedy = f"correct it or add it to grid.{key}"
                    _refuse(f"must be in grid.{key}", remedy, "overrides", i, key, got=one)


def _check_sizes(config: Config) -> None:
    axes = config.grid.axes()
    longest = max(axes, key=lambda axis: len(axes[axis]))
    remedy = f"shorten grid.{longest} ({len(axes[longest]):,} values) or split the run"
    points = len(config.grid.family) * len(axes["d"]) * len(axes["gap"])
    if points > MAX_SHARDS:
        _refuse(f"asks for {points:,} shards or more, at most {MAX_SHARDS:,} fit", remedy, "grid")
    parts, changing = _narrowed(config)
    idle = set(range(len(config.overrides))) - changing
    if idle:
        _refuse(
            "changes nothing in the grid", "correct its keys or remove it", "overrides", min(idle)
        )
    if not parts:
        _refuse("leave nothing of the grid", "remove one of them", "overrides")
    shards = sum(len(part.n_tokens) for part in parts)
    cells = sum(len(part.n_tokens) * len(part.beta) * len(part.seed) for part in parts)
    if shards > MAX_SHARDS:
        _refuse(f"asks for {shards:,} shards, at most {MAX_SHARDS:,} fit", remedy, "grid")
    if cells > MAX_CELLS:
        _refuse(f"asks for {cells:,} cells, at most {MAX_CELLS:,} fit", remedy, "grid")


def _check_part(config: Config, part: Part) -> None:
    family = config.families[part.family]
    if isinstance(family, _Drawn) and part.d is not None and family.multiplicity >= part.d:
        at = ("families", part.family, "multiplicity")
        remedy = "lower it or narrow d by an override"
        _refuse(f"must be < d, here {part.d}", remedy, *at, got=family.multiplicity)
    sampling, start = config.initial.sampling, ("initial", "sampling")
    if sampling == "antipodal" and any(n % 2 for n in part.n_tokens):
        odd = next(n for n in part.n_tokens if n % 2)
        allowed = f"antipodal needs even n_tokens, {part.family} has {odd:.0f}"
        _refuse(allowed, "make it even or set iid", *start, got=sampling)
    if sampling == "equispaced" and part.d not in (None, 2):
        allowed = f"equispaced needs d = 2, {part.family} has {part.d}"
        _refuse(allowed, "set iid or qmc, or keep d = 2 only", *start, got=sampling)


# ---- reading -------------------------------------------------------------------------------


class _Shown(reprlib.Repr):
    """A value as YAML spells it, shortened."""

    def repr_float(self, value: float, _level: int) -> str:
        return repr(value).replace("inf", ".inf").replace("nan", ".nan")

    def repr_bool(self, value: bool, _level: int) -> str:
        return str(value).lower()

    def repr_NoneType(self, _value: None, _level: int) -> str:
        return "null"


_SHOWN = _Shown()
_SHOWN.maxlevel, _SHOWN.maxdict, _SHOWN.maxlist, _SHOWN.maxtuple = 2, 3, 4, 4
_SHOWN.maxstring = _SHOWN.maxother = 60


def one_line(text: str, limit: int = _MAX_LINE) -> str:
    """Put a message in one printable line, cut at the limit.

    Examples
    --------
    >>> one_line("a message of   many words", 15)
    'a message of...'
    """
    line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def _dotted(steps: tuple[object, ...]) -> str:
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step not in ("<one>", "<list>"):
            path += f".{one_line(str(step), 40)}"
    return path.removeprefix(".") or "the file"


def _line(error: ValidationError) -> str:
    """Put the first mistake in one line and count the others."""
    first, *others = error.errors()
    context = {"allowed": first["msg"], "remedy": "", "at": ()} | first.get("ctx", {})
    loc = first["loc"]
    if loc[0:1] == ("families",):
        loc = loc[:2] + loc[3:]
    path = _dotted((*loc, *context["at"]))
    value = context.get("got", _MISSING if context["at"] else first["input"])
    shown = "" if value is _MISSING else f" = {one_line(_SHOWN.repr(value), 80)}"
    parent = path.rpartition("[")[0] if path.endswith("]") else ""
    remedy = context["remedy"] or (
        f"correct or remove it from {parent}" if parent else "correct it"
    )
    more = f" (and {len(others)} more)" if others else ""
    line = f"{path}{shown}: {context['allowed']}; {remedy}"
    return one_line(line, _MAX_LINE - len(more)) + more


def _check_node(node: yaml.Node, path: tuple[object, ...], seen: set[int]) -> None:
    """Refuse what YAML would merge or expand in silence."""
    if id(node) in seen:
        _refuse_node(node, path, "aliases (*name) are not allowed; write the value out")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode) and len(node.value) > _MAX_SCALAR:
        _refuse_node(node, path, f"a value may have {_MAX_SCALAR:,} characters at most; shorten it")
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            _check_node(item, (*path, i), seen)
    if isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            _check_node(key, path, seen)
            if key.value in keys:
                _refuse_node(key, (*path, key.value), "the key is given twice; remove one of them")
            keys.add(key.value)
            _check_node(value, (*path, key.value), seen)


def _refuse_node(node: yaml.Node, path: tuple[object, ...], why: str) -> NoReturn:
    raise InputError(one_line(f"{_dotted(path)} (line {node.start_mark.line + 1}): {why}"))


def _parse(text: str) -> object:
    loader = yaml.SafeLoader(text)
    node = loader.get_single_node()
    if node is None:
        return None
    _check_node(node, (), set())
    return loader.construct_document(node)


def _read(path: Path) -> object:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) <= _MAX_BYTES:
            return _parse(data.decode("utf-8"))
        why = f"has more than {_MAX_BYTES:,} bytes; shorten it"
    except InputError:
        raise
    except OSError as error:
        why = f"cannot be read ({error.strerror}); give the path of a config file"
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not UTF-8; save the file as UTF-8"
    except _UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        what = f"line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark else error
        why = f"is not the YAML of a config ({what}); correct it"
    raise InputError(one_line(f"{path}: {why}"))


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read, check and freeze a config file.

    Parameters
    ----------
    path
        A YAML file in UTF-8 of at most 1 MB, without aliases or repeated keys.

    Returns
    -------
    Config
        The sweep, with every default filled in and each file family's path made absolute.

    Raises
    ------
    InputError
        One line of at most 300 characters that names the key, the value received, what is
        allowed and the remedy.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "config.yaml")
    ...     _ = path.write_text("run: demo", encoding="utf-8")
    ...     load_config(path)
    Traceback (most recent call last):
    mfsweep._types.InputError: grid: required key is missing; add it
    """
    path = Path(path)
    document = _read(path)
    try:
        return Config.model_validate(document, context={"folder": path.parent})
    except ValidationError as error:
        raise InputError(_line(error)) from None


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of a config file.

    Examples
    --------
    >>> config_schema()["required"]
    ['run', 'grid', 'families', 'time']
    """
    return Config.model_json_schema()
