"""Figures of a run: xarray Datasets in, matplotlib Figures out, and the files they go to."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from mfsweep._errors import InputError
from mfsweep.plotting.cells import Orbit, read_orbit
from mfsweep.plotting.continuum import continuum
from mfsweep.plotting.curves import distances, w2_curves
from mfsweep.plotting.panels import Panel, read_panels
from mfsweep.plotting.style import STYLE, WIDTHS
from mfsweep.plotting.switching import switch_times
from mfsweep.plotting.terms import bound_terms
from mfsweep.plotting.tokens import tokens_circle, tokens_sphere
from mfsweep.sweep.config import Config
from mfsweep.sweep.figures import TOKEN_FIGURES, figure_names
from mfsweep.sweep.folder import provenance

__all__ = [
    "Orbit",
    "Panel",
    "bound_terms",
    "continuum",
    "distances",
    "draw_figures",
    "read_orbit",
    "read_panels",
    "switch_times",
    "tokens_circle",
    "tokens_sphere",
    "w2_curves",
    "write_figures",
]

_TOKENS = {2: tokens_circle, 3: tokens_sphere}


def draw_figures(
    config: Config,
    run_folder: Path,
    only: Sequence[str] = (),
    style: Path | None = None,
    width: str = "double",
) -> Iterator[tuple[str, Figure]]:
    """Draw the figures of a run under `STYLE`, one at a time.

    Parameters
    ----------
    config
        What the figures show.
    run_folder
        Folder of the run, results/{run}, after collect.
    only
        Names of the figures to draw; all if there are none.
    style
        A matplotlib style file, whose settings come after `STYLE`.
    width
        Key of `WIDTHS`; a style file's own figure.figsize comes before it.

    Yields
    ------
    str, Figure
        The names of `figure_names`, in that order, and the figures.

    Raises
    ------
    InputError
        If the run has no such figure, there is no such width, or the style file cannot be read.
    """
    names = figure_names(config)
    if unknown := [name for name in only if name not in names]:
        message = f"--figure {unknown[0]}: this config has {', '.join(names)}"
        raise InputError(message)
    if width not in WIDTHS:
        message = f"--width {width}: must be one of {', '.join(WIDTHS)}"
        raise InputError(message)
    page = {"figure.figsize": (WIDTHS[width], STYLE["figure.figsize"][1])}
    settings = STYLE | page | ({} if style is None else _read_style(style))
    panels = read_panels(config, run_folder)
    draw: dict[str, Callable[[], Figure]] = {
        "w2_curves": partial(w2_curves, panels),
        "distances": partial(distances, panels),
        "switch_times": partial(switch_times, panels),
        "bound_terms": partial(bound_terms, panels),
        "continuum": partial(continuum, panels),
    }
    for d, name in TOKEN_FIGURES.items():
        draw[name] = partial(_tokens, panels, d, run_folder)
    for name in names:
        if not only or name in only:
            with mpl.rc_context(settings):
                yield name, draw[name]()


def _read_style(path: Path) -> dict[Any, Any]:
    try:
        return dict(mpl.rc_params_from_file(path, fail_on_error=True, use_default_template=False))
    except (OSError, ValueError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}"
        message = f"--style {path} cannot be read ({reason}): name a matplotlib style file"
        raise InputError(message) from error


def _tokens(panels: tuple[Panel, ...], d: int, run_folder: Path) -> Figure:
    return _TOKENS[d](read_orbit(panels, d, run_folder))


def write_figures(
    config: Config,
    run_folder: Path,
    only: Sequence[str] = (),
    style: Path | None = None,
    width: str = "double",
    to: Path | None = None,
) -> list[Path]:
    """Write figures of a run in every format that the config names.

    The files carry what every store carries, the config itself included (PNG: text `Provenance`,
    PDF: `Keywords`; both JSON), and nothing that changes from one call to the next.

    Parameters
    ----------
    config
        What the figures show; `config.figures` holds formats and resolution.
    run_folder
        Folder of the run, results/{run}, after collect.
    only, style, width
        As `draw_figures` takes them.
    to
        Folder of the files; figures of the run's folder by default.

    Returns
    -------
    list of Path
        The files, in the order of `figure_files`.

    Raises
    ------
    InputError
        As `draw_figures`.
    """
    folder = run_folder / "figures" if to is None else to
    folder.mkdir(parents=to is not None, exist_ok=True)
    written = []
    for name, figure in draw_figures(config, run_folder, only, style, width):
        for suffix in config.figures.formats:
            path = folder / f"{name}.{suffix}"
            metadata = _metadata(config, name, suffix)
            figure.savefig(path, dpi=config.figures.dpi, metadata=metadata)
            written.append(path)
    return written


def _metadata(config: Config, name: str, suffix: str) -> dict[str, str | None]:
    """Say what made a file, in the words of its format."""
    made = provenance(config)
    software = f"mfsweep {made['mfsweep_version']}"
    source = f"config digest {made['config_digest']}, git commit {made['git_commit']}"
    label = f"{name} of run {config.run}"
    whole = json.dumps(made)
    if suffix == "pdf":
        about = {"Title": label, "Creator": software, "Subject": source, "Keywords": whole}
        return {**about, "CreationDate": None}
    return {"Title": label, "Software": software, "Source": source, "Provenance": whole}
