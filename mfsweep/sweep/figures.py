"""Names of a run's figures: known from the config before anything has run."""

from mfsweep.sweep.config import Config
from mfsweep.sweep.grid import shards

TOKEN_FIGURES = {2: "tokens_circle", 3: "tokens_sphere"}
"""Pictures of tokens by dimension; other dimensions have none."""


def figure_names(config: Config) -> tuple[str, ...]:
    """Return the names of the figures that a config asks for.

    Examples
    --------
    >>> grid = dict(family=["id"], d=[2, 4], gap=[0.5], n_tokens=[8], beta=[1, 2], seed=3)
    >>> config = Config.model_validate(
    ...     dict(run="a", grid=grid, families={"id": {"kind": "identity"}},
    ...          time={"t_end": 1, "n_times": 2}))
    >>> figure_names(config)
    ('w2_curves', 'distances', 'switch_times', 'bound_terms', 'tokens_circle')
    """
    asked = shards(config)
    dimensions = {shard.d for shard in asked if not shard.continuum}
    pictures = [name for d, name in TOKEN_FIGURES.items() if d in dimensions]
    finite, endless = (
        {(shard.family, shard.d, shard.gap) for shard in asked if shard.continuum == kind}
        for kind in (False, True)
    )
    compared = ["continuum"] if finite & endless else []
    return ("w2_curves", "distances", "switch_times", "bound_terms", *compared, *pictures)


def caption_file(file: str) -> str:
    """Return the name of the caption that belongs to a figure's file.

    >>> caption_file("w2_curves.png"), caption_file("tokens_sphere.pdf")
    ('w2_curves.rst', 'tokens.rst')
    """
    name = file.partition(".")[0]
    return "tokens.rst" if name in TOKEN_FIGURES.values() else f"{name}.rst"


def figure_files(config: Config) -> tuple[str, ...]:
    """Return the file names in results/{run}/figures: every figure in every format."""
    return tuple(
        f"{name}.{suffix}" for name in figure_names(config) for suffix in config.figures.formats
    )
