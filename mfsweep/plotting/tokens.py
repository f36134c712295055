"""Tokens of one cell on the circle or the sphere, at a few telling times."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from mfsweep._types import Array, Basis
from mfsweep.dynamics.sphere import normalise
from mfsweep.plotting.cells import Orbit
from mfsweep.plotting.style import BLUE, ORANGE, columns_of, legend_below, say_in, title

_SIZE = 1.6  # least width of a picture in inches
_AREA = {2: 230.0, 3: 450.0}  # of all markers of a picture, square points a square inch, by d
_WIDTH = 0.04  # of the boxes of space in which tokens share a marker
_APART = 0.07  # between the rings of the two basins on the circle
_BASINS = ((True, BLUE, "o", "+"), (False, ORANGE, "^", "-"))
_TURN = np.linspace(0.0, 2.0 * np.pi, 361)


def tokens_circle(orbit: Orbit | None) -> Figure:
    """Draw the tokens of a cell with d = 2.

    Parameters
    ----------
    orbit
        The cell; None draws an empty figure that says so.

    Returns
    -------
    Figure
        One panel a moment. Tokens bound for +e lie just outside the circle, the others inside;
        a marker's area is proportional to its mass.
    """
    if orbit is None:
        return _nothing()
    moments = orbit.moments()
    figure, axes, width = _pictures(len(moments), 1)
    for axis, (text, k) in zip(axes[0], moments, strict=True):
        _frame(axis, f"{text}\n$t={orbit.times[k]:.3g}$")
        _line(axis, orbit.dominant, "-")
        _line(axis, orbit.weights.terminal(), "--")
        for bound, colour, marker, _ in _BASINS:
            chosen = orbit.basin == bound
            x, mass = gather(orbit.tokens[k][chosen], orbit.mass[chosen])
            radius = 1.0 + (_APART if bound else -_APART)
            _scatter(axis, radius * x, mass, _AREA[2] * width**2, colour, marker)
    lines = [Line2D([], [], color="0.4", label=r"$E$")] if orbit.dominant.size else []
    lines += [Line2D([], [], color="0.4", ls="--", label=r"$V$'s dominant direction")]
    _finish(figure, orbit, lines)
    return figure


def tokens_sphere(orbit: Orbit | None) -> Figure:
    """Draw the tokens of a cell with d = 3, both hemispheres in equal-area projection.

    Parameters
    ----------
    orbit
        The cell; None draws an empty figure that says so.

    Returns
    -------
    Figure
        One column a moment; top row: near hemisphere; bottom row: far one, seen through the
        sphere. A marker's area is proportional to its mass.
    """
    if orbit is None:
        return _nothing()
    moments = orbit.moments()
    figure, axes, width = _pictures(len(moments), 2)
    view = camera(orbit.dominant, orbit.weights.terminal())
    for column, (text, k) in zip(axes.T, moments, strict=True):
        for axis, near in zip(column, (True, False), strict=True):
            _frame(axis, f"{text}\n$t={orbit.times[k]:.3g}$" if near else "")
            _subspace(axis, orbit.dominant, view, near=near, mark="P", style="-")
            _subspace(axis, orbit.weights.terminal(), view, near=near, mark="X", style="--")
            for bound, colour, marker, _ in _BASINS:
                chosen = orbit.basin == bound
                x, mass = gather(orbit.tokens[k][chosen], orbit.mass[chosen])
                here = ((x @ view[2]) >= 0) == near
                area = _AREA[3] * width**2
                _scatter(axis, project(x[here], view), mass[here], area, colour, marker)
    for axis, text in zip(axes[:, 0], ("near hemisphere", "far hemisphere"), strict=True):
        axis.text(-1.2, 0.0, text, rotation=90, ha="center", va="center")
    e = _space_handle(orbit.dominant, "P", "-", r"$E$")
    v = _space_handle(orbit.weights.terminal(), "X", "--", r"$V$'s dominant eigenspace")
    _finish(figure, orbit, [e, v] if orbit.dominant.size else [v])
    return figure


def _pictures(count: int, each: int) -> tuple[Figure, NDArray[Any], float]:
    """Return a figure, its axes (each, count), pictures of one moment beneath each other, width."""
    columns, width = columns_of(count, _SIZE)
    rows = -(-count // columns)
    size = (width * columns, width * each * rows + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    table = figure.subplots(rows * each, columns, squeeze=False)
    axes = table.reshape(rows, each, columns).swapaxes(0, 1).reshape(each, -1)
    for axis in axes[:, count:].ravel():
        axis.set_axis_off()
    return figure, axes[:, :count], width


def gather(x: Array, mass: Array) -> tuple[Array, Array]:
    """Join tokens that share a box of space: unit vectors and the mass at each.

    >>> x, mass = gather(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.full(3, 0.25))
    >>> mass
    array([0.25, 0.5 ])
    """
    boxes = np.round(x / _WIDTH).astype(int)
    _, members = np.unique(boxes, axis=0, return_inverse=True)
    total = np.zeros(members.max(initial=-1) + 1)
    centre = np.zeros((total.size, x.shape[1]))
    np.add.at(total, members, mass)
    np.add.at(centre, members, mass[:, None] * x)
    return normalise(centre), total


def camera(dominant: Basis, terminal: Basis) -> Array:
    """Return right, up and view as rows: E and V's first direction lie in the near hemisphere."""
    e = dominant[:, 0] if dominant.size else terminal[:, 0]
    across = terminal[:, 0] - (terminal[:, 0] @ e) * e
    if np.linalg.norm(across) < 1e-6:
        axis = np.eye(3)[np.abs(e).argmin()]
        across = axis - (axis @ e) * e
    v = normalise(across)
    view = normalise(e + v + 0.8 * np.cross(e, v))
    up = normalise(e - (e @ view) * view)
    return np.stack([np.cross(up, view), up, view])


def project(x: Array, view: Array) -> Array:
    """Map unit vectors to the unit disc, areas kept; both hemispheres seen from the near side."""
    depth = np.abs(x @ view[2])
    flat: Array = x @ view[:2].T / np.sqrt(1.0 + depth)[:, None]
    return flat


def _scatter(axis: Axes, x: Array, mass: Array, area: float, colour: str, marker: str) -> None:
    """Draw markers whose area is the mass, the heaviest first."""
    order = np.argsort(-mass, kind="stable")
    axis.scatter(
        x[order, 0],
        x[order, 1],
        s=area * mass[order],
        c=colour,
        marker=marker,
        alpha=0.75,
        edgecolors="white",
        linewidths=0.3,
        zorder=2,
    )


def _line(axis: Axes, basis: Basis, style: str) -> None:
    """Draw a one-dimensional subspace of the plane through the circle."""
    if basis.shape[1] == 1:
        ends = 1.3 * np.stack([-basis[:, 0], basis[:, 0]])
        axis.plot(*ends.T, style, color="0.4", lw=1.0, zorder=1)


def _subspace(axis: Axes, basis: Basis, view: Array, *, near: bool, mark: str, style: str) -> None:
    """Mark where a subspace meets one hemisphere: a point or half a great circle."""
    if basis.shape[1] == 1:
        point = basis.T if (basis[:, 0] @ view[2] >= 0) == near else -basis.T
        axis.plot(*project(point, view).T, mark, color="black", mec="white", ms=8, zorder=3)
    elif basis.shape[1] == 2:
        circle = np.stack([np.cos(_TURN), np.sin(_TURN)], axis=-1) @ basis.T
        flat = project(circle, view)
        flat[((circle @ view[2]) >= 0) != near] = np.nan
        axis.plot(*flat.T, style, color="0.4", lw=1.0, zorder=1)


def _space_handle(basis: Basis, mark: str, style: str, label: str) -> Line2D:
    if basis.shape[1] == 1:
        return Line2D([], [], color="black", marker=mark, ls="", mec="white", ms=8, label=label)
    return Line2D([], [], color="0.4", ls=style, lw=1.0, label=label)


def _frame(axis: Axes, text: str) -> None:
    """Draw the unit circle as the frame of a picture."""
    axis.plot(np.cos(_TURN), np.sin(_TURN), color="0.75", lw=0.8, zorder=0)
    axis.set_title(text, linespacing=1.0)
    axis.set_aspect("equal")
    axis.set_xlim(-1.35, 1.35)
    axis.set_ylim(-1.35, 1.35)
    axis.set_axis_off()


def _finish(figure: Figure, orbit: Orbit, lines: Sequence[Line2D]) -> None:
    """Add the title and the legend, which tells the mass of each basin."""
    figure.suptitle(f"{title(orbit.shard)}, $\\beta={orbit.beta:.4g}$, seed {orbit.seed}\n")
    handles = [
        Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            ls="",
            label=rf"bound for ${sign}e$: mass {orbit.mass[orbit.basin == bound].sum():.3f}"
            if orbit.dominant.size
            else "tokens (no metastable target)",
        )
        for bound, colour, marker, sign in (_BASINS if orbit.dominant.size else _BASINS[:1])
    ]
    legend_below(figure, [*handles, *lines])


def _nothing() -> Figure:
    figure = Figure(figsize=(3 * _SIZE, _SIZE), layout="constrained")
    axis = figure.subplots()
    axis.set_axis_off()
    say_in(axis, "no cell of this dimension has been computed")
    return figure
