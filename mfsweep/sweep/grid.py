"""Which cells a config asks for, their names, and the digests that tell when they are stale.

A digest is 16 hexadecimal digits of BLAKE2b over canonical JSON: keys sorted, floats by their
shortest exact form. A weights file enters by its content, never by its path.
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mfsweep._errors import InputError
from mfsweep.sweep.config import Config, File, Part, Time, one_line, significant

if TYPE_CHECKING:
    from mfsweep._types import Times
    from mfsweep.dynamics.given import Given

NUMERICS_VERSION = 3
"""Raised when the same config would give other numbers: cells of older versions are stale."""
CONTINUUM_TOKENS = 1000.0
"""Tokens whose simulation takes about as long as that of the continuum."""

MEASURE_VERSION = 3
"""Raised when the same tokens would be measured otherwise, or more is measured."""


@dataclass(frozen=True)
class Cell:
    """One run: a family at (d, gap), n_tokens tokens drawn by seed, one beta."""

    family: str
    d: int
    gap: float
    n_tokens: float
    beta: float
    seed: int


@dataclass(frozen=True)
class Shard:
    """The cells of one (family, d, gap, n_tokens), whose arrays all have one shape.

    Parameters
    ----------
    family
        Label of an entry under ``families``.
    d
        Dimension of the space whose unit sphere holds the tokens, at least 2.
    gap
        Spectral gap of A, dimensionless; for a file as measured, to 12 significant digits.
    n_tokens
        Number of tokens; infinite for the continuum.
    betas, seeds
        Inverse temperatures and token seeds, ascending; the continuum has the first seed only.

    Examples
    --------
    >>> shard = Shard("aligned", 2, 0.25, 1024.0, betas=(8.0, 16.0), seeds=(0, 1))
    >>> shard.id
    'aligned-d2-...'
    >>> [(cell.beta, cell.seed) for cell in shard.cells()]
    [(8.0, 0), (8.0, 1), (16.0, 0), (16.0, 1)]
    """

    family: str
    d: int
    gap: float
    n_tokens: float
    betas: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def id(self) -> str:
        """Return a short name, safe in paths, that growing by a beta or a seed leaves alone."""
        place = _digest([self.family, self.d, self.gap.hex(), self.n_tokens.hex()])
        return f"{self.family}-d{self.d}-{place[:12]}"

    @property
    def continuum(self) -> bool:
        """Whether the shard has a density in place of tokens."""
        return math.isinf(self.n_tokens)

    @property
    def pairs(self) -> float:
        """Return the token pairs of one drift of every cell: what the shard's time grows with."""
        tokens = CONTINUUM_TOKENS if self.continuum else self.n_tokens
        return len(self.betas) * len(self.seeds) * tokens**2

    @property
    def place(self) -> dict[str, Any]:
        """Return family, d, gap and n_tokens as attributes of a store; JSON knows no infinity."""
        count = "inf" if self.continuum else self.n_tokens
        return {"family": self.family, "d": self.d, "gap": self.gap, "n_tokens": count}

    def cells(self) -> Iterator[Cell]:
        """Yield every cell, the seed running fastest."""
        for beta in self.betas:
            for seed in self.seeds:
                yield Cell(self.family, self.d, self.gap, self.n_tokens, beta, seed)


def shards(config: Config) -> tuple[Shard, ...]:
    """Return every shard that the config asks for.

    Families come in the config's order, then d, gap and n_tokens ascending. A file family is one
    (d, gap), measured from its matrices.

    Parameters
    ----------
    config
        A checked config.

    Returns
    -------
    tuple of Shard
        Shards with distinct ids.

    Raises
    ------
    InputError
        If a weights file cannot be read, or its d does not suit the initial tokens.

    Examples
    --------
    >>> grid = dict(family=["id"], d=[2], gap=[0.5], n_tokens=[8, 16], beta=[1, 2], seed=3)
    >>> config = Config.model_validate(
    ...     dict(run="a", grid=grid, families={"id": {"kind": "identity"}},
    ...          time={"t_end": 1, "n_times": 2}))
    >>> [(shard.n_tokens, shard.betas, shard.seeds) for shard in shards(config)]
    [(8.0, (1.0, 2.0), (0, 1, 2)), (16.0, (1.0, 2.0), (0, 1, 2))]
    """
    return tuple(
        Shard(part.family, d, gap, n_tokens, part.beta, part.seeds(n_tokens))
        for part in config.parts()
        for d, gap in [_place(config, part)]
        for n_tokens in part.n_tokens
    )


def _place(config: Config, part: Part) -> tuple[int, float]:
    """Return d and gap, from the weights file where the grid does not give them."""
    if part.d is not None and part.gap is not None:
        return part.d, part.gap
    family = config.families[part.family]
    if not isinstance(family, File):
        message = f"{part.family} has no d and gap, yet is no file family"
        raise TypeError(message)
    try:
        d, gap, has_target, width = _measured(family, *_state(family.path))
    except InputError as error:
        line = f"families.{part.family}.path = {family.path.name!r}: {error}; correct the file"
        raise InputError(one_line(line)) from error
    start = config.initial.path
    if start is not None and (found := _token_width(start, *_state(start))) != width:
        message = (
            f"initial.path = {start.name!r}: its tokens have d = {found}, and families."
            f"{part.family}.path = {family.path.name!r} has d = {width}; give files of one d"
        )
        raise InputError(message)
    if config.initial.sampling == "equispaced" and d != 2:
        message = (
            f"initial.sampling = 'equispaced': equispaced needs d = 2, families.{part.family}.path"
            f" holds d = {d}; set iid or qmc, or remove the family from grid.family"
        )
        raise InputError(message)
    if math.inf in part.n_tokens and not (d == 2 and has_target and gap > 0):
        message = (
            f"n_tokens = .inf: the continuum needs d = 2 and a simple real dominant eigenvalue of "
            f"V B^T, families.{part.family}.path holds d = {d}, gap = {gap:g}; give the family "
            "finite n_tokens by an override"
        )
        raise InputError(message)
    return d, gap


@lru_cache(maxsize=4096)
def _measured(family: File, _modified: int, _size: int) -> tuple[int, float, bool, int]:
    """Return d, gap, whether A has a metastable target, and the file's own d.

    Measured once for as long as the file stays.
    """
    from mfsweep.dynamics.given import load_given  # it needs scipy; most configs do not

    found = load_given(family.path, family.span, family.scale)
    weights, width = found.weights, found.weights.d if found.basis is None else len(found.basis)
    return weights.d, significant(weights.gap), weights.has_target, width


@lru_cache(maxsize=8)
def _token_width(path: Path, _modified: int, _size: int) -> int:
    """Return the d of a file of tokens."""
    from mfsweep.dynamics.initial import load_tokens

    return int(load_tokens(path)[0].shape[1])


def _state(path: Path) -> tuple[int, int]:
    """Return time and size of a file, by which it counts as the same; zeros where there is none."""
    try:
        state = path.stat()
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size


def given(config: Config, place: Shard | Cell) -> "Given | None":
    """Return what a file family's weights were made from, None for a family that is drawn."""
    options = config.families[place.family]
    if not isinstance(options, File):
        return None
    from mfsweep.dynamics.given import load_given

    return load_given(options.path, options.span, options.scale)


def times(time: Time) -> "Times":
    """Return the saved times t_i = t_end i / (n_times - 1), i = 0..n_times - 1.

    Parameters
    ----------
    time
        End (dimensionless) and number of times.

    Returns
    -------
    Times
        Shape (time,); each is computed by itself, so no rounding accumulates, and the last is
        t_end exactly.

    Examples
    --------
    >>> times(Time(t_end=60, n_times=5))
    array([ 0., 15., 30., 45., 60.])
    """
    import numpy as np

    grid = time.t_end * np.arange(time.n_times) / (time.n_times - 1)
    grid[-1] = time.t_end
    return grid


def cell_digest(config: Config, shard: Shard, *, numerics: bool = True) -> str:
    """Return the digest of all that settles a cell's numbers but its beta and seed.

    That is the family's options (a file's content), d, gap, n_tokens, what the shard uses of the
    sections ``initial``, ``time`` and ``solver``, the stored dtype and `NUMERICS_VERSION`. Equal
    digests, beta and seed mean equal numbers. Without `numerics` it tells the settings alone: cells
    of one such digest differ by the numerics version that made them, which every cell records.
    """
    return _digest(
        {
            "numerics": NUMERICS_VERSION if numerics else None,
            "family": _options(config, shard.family),
            "place": [shard.d, shard.gap, shard.n_tokens],
            "initial": _initial(config, without=("sampling",) if shard.continuum else ()),
            "time": config.time.model_dump(),
            "solver": _solver(config, shard),
            "dtype": config.store.dtype,
        }
    )


def simulate_digest(config: Config, shard: Shard, prunings: int = 0) -> str:
    """Return the digest of what a shard's job computes: its cells' digest, betas and seeds.

    Cells that were pruned and are asked for again are another job than the first one: `prunings`
    counts how often the shard lost cells.
    """
    again = [prunings] if prunings else []
    return _digest([cell_digest(config, shard), shard.betas, shard.seeds, *again])


def measure_digest(config: Config, shard: Shard) -> str:
    """Return the digest of what a shard's curves are made from."""
    return _digest([simulate_digest(config, shard), MEASURE_VERSION])


def collect_digest(config: Config) -> str:
    """Return the digest of what curves, switch times and laws are made from."""
    asked = [(shard.id, measure_digest(config, shard)) for shard in shards(config)]
    return _digest([asked, config.laws.model_dump()])


def figures_digest(config: Config) -> str:
    """Return the digest of the figures' settings, which no other rule depends on."""
    return _digest(config.figures.model_dump())


def config_digest(config: Config) -> str:
    """Return the digest of the whole config, comments and paths aside."""
    families = {label: _options(config, label) for label in config.families}
    files = {"families": families, "initial": _initial(config)}
    return _digest(config.model_dump(exclude=set(files)) | files)


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _options(config: Config, label: str) -> dict[str, Any]:
    """Return a family's options, a file's path replaced by its content."""
    family = config.families[label]
    if not isinstance(family, File):
        return family.model_dump()
    options = family.model_dump(exclude={"path"}, exclude_defaults=True)
    return options | {"content": _content_of(family.path, f"families.{label}.path")}


def _solver(config: Config, shard: Shard) -> dict[str, Any]:
    """Return the keys of the section ``solver`` that a shard's numbers depend on."""
    if shard.continuum:
        return config.solver.model_dump(include={"rtol", "atol", "resolution"})
    return config.solver.model_dump(exclude={"resolution"})


def _initial(config: Config, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the section ``initial``, a file's path replaced by its content."""
    options, path = config.initial.model_dump(exclude=set(without)), config.initial.path
    if path is not None:
        options["path"] = _content_of(path, "initial.path")
    return options


def _content_of(path: Path, key: str) -> str:
    try:
        state = path.stat()
        return _content(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        message = f"{key} = {path}: cannot be read ({error.strerror})"
        raise InputError(one_line(f"{message}; restore the file or correct the path")) from error


@lru_cache(maxsize=64)
def _content(path: Path, _modified: int, _size: int) -> str:
    """Digest a file once for as long as its time and size stay."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
