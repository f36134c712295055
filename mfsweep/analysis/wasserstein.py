"""Exact Wasserstein-2 distances between discrete measures on the sphere."""

import warnings

import numpy as np

from mfsweep._errors import InputError, TransportError
from mfsweep._types import Array, Masses, Metric, Tokens
from mfsweep.dynamics.sphere import chordal, geodesic

DISTANCES = {"chordal": chordal, "geodesic": geodesic}
LARGEST_PLAN = 2048
"""Most support points for which the matrix of costs is formed (the solve then takes 200 MB); past
it each cost is computed when it is needed, in memory of order n and twice the time."""

_ROWS = 256
_MOST_PIVOTS = 100_000_000


def w2(
    x: Tokens,
    y: Tokens,
    *,
    mass_x: Masses | None = None,
    mass_y: Masses | None = None,
    metric: Metric = "chordal",
) -> float:
    """Compute the Wasserstein-2 distance between two discrete measures.

    W2^2 = min_pi sum_ij pi_ij dist(x_i, y_j)^2 over couplings pi of the two measures.

    Parameters
    ----------
    x, y
        Support points, unit vectors, shapes (n, d) and (k, d).
    mass_x, mass_y
        Masses > 0, shapes (n,) and (k,), each scaled to sum 1; equal if left out.
    metric
        "chordal", |x - y|, or "geodesic", the angle in radians.

    Returns
    -------
    float
        W2, in the unit of the metric.

    Raises
    ------
    InputError
        If shapes disagree, a value is not finite, or the metric is geodesic where both supports
        exceed `LARGEST_PLAN` points.
    TransportError
        If the solver stops before it converged.

    Notes
    -----
    Exact: by sorting if one measure has at most two distinct atoms, O(n log n); by network simplex
    (POT) otherwise. For equal masses an assignment solver is faster on scattered points, but 3 to 5
    times slower on tokens near E, where many costs are almost equal.

    >>> square = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> w2(square, square[::-1]), round(w2(square, square[:1]) ** 2, 12)
    (0.0, 2.0)
    """
    x, mass_x = _check_measure("x", x, mass_x)
    y, mass_y = _check_measure("y", y, mass_y)
    if x.shape[1] != y.shape[1]:
        message = f"x lives in dimension {x.shape[1]} and y in {y.shape[1]}: they must agree"
        raise InputError(message)
    if metric not in DISTANCES:
        message = f"metric = {metric!r}: choose one of {sorted(DISTANCES)}"
        raise InputError(message)
    one, other = _distinct(x, mass_x), _distinct(y, mass_y)
    if len(one[0]) < len(other[0]):
        one, other = other, one
    atoms, mass = other
    if len(atoms) <= 2:
        return _to_atoms(*one, atoms, float(mass[0]), metric)
    return _transport(*one, *other, metric)


def w2_curve(tokens: Array, target: Tokens, mass: Masses, *, metric: Metric = "chordal") -> Array:
    """Compute W2 from the tokens at each time to one target with the same masses.

    Parameters
    ----------
    tokens
        Unit vectors, shape (time, n, d).
    target
        Unit vectors, shape (n, d).
    mass
        Masses of both, shape (n,).
    metric
        "chordal" or "geodesic".

    Returns
    -------
    Array
        W2, shape (time,).

    Raises
    ------
    TransportError
        If a solve stops before it converged; the message names the time's index.

    Notes
    -----
    Where every token's nearest target is its own, the coupling of equal indices is optimal, and
    nothing is solved: so it is at beta = inf.
    """
    atoms = np.unique(target, axis=0)
    if len(atoms) <= 2:
        at_first = float(mass @ (target == atoms[0]).all(axis=1))
        return np.array([_to_atoms(x, mass, atoms, at_first, metric) for x in tokens])
    curve = np.empty(len(tokens))
    for k, x in enumerate(tokens):
        if _nearest_is_own(x, target):
            curve[k] = coupling_distance(x, target, mass, metric=metric)
            continue
        try:
            curve[k] = w2(x, target, mass_x=mass, mass_y=mass, metric=metric)
        except TransportError as error:
            message = f"time index {k}: {error}"
            raise TransportError(message) from error
    return curve


def coupling_distance(x: Array, y: Array, mass: Masses, *, metric: Metric = "chordal") -> Array:
    """Measure sqrt(sum_i w_i dist(x_i, y_i)^2), an upper bound of W2; (..., n, d) -> (...).

    >>> coupling_distance(np.eye(2), np.eye(2)[::-1], np.full(2, 0.5)) ** 2
    np.float64(2.0...)
    """
    distance: Array = np.sqrt(DISTANCES[metric](x, y) ** 2 @ mass)
    return distance


def _check_measure(name: str, x: Tokens, mass: Masses | None) -> tuple[Tokens, Masses]:
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or len(x) == 0 or not np.isfinite(x).all():
        message = f"{name} has shape {x.shape}: expected (n, d), n >= 1, every entry finite"
        raise InputError(message)
    mass = np.full(len(x), 1.0) if mass is None else np.asarray(mass, dtype=np.float64)
    if mass.shape != (len(x),) or not (np.isfinite(mass).all() and (mass > 0).all()):
        message = f"mass_{name} has shape {mass.shape}: expected {len(x)} positive finite numbers"
        raise InputError(message)
    return x, mass / mass.sum()


def _distinct(x: Tokens, mass: Masses) -> tuple[Tokens, Masses]:
    """Take equal tokens as one, for those that have met move on together; in the order given.

    Sorted, the network simplex would take up to ten times as long.
    """
    _, first, place = np.unique(x, axis=0, return_index=True, return_inverse=True)
    order, total = np.argsort(first), np.zeros(len(first))
    np.add.at(total, place.reshape(-1), mass)
    return x[first[order]], total[order]


def _to_atoms(x: Tokens, mass: Masses, atoms: Tokens, at_first: float, metric: Metric) -> float:
    """W2 to one or two atoms: those for whom the first atom is the better bargain go there.

    Sending token i to atom 0 rather than atom 1 costs c_i0 - c_i1 more per unit of mass, so the
    tokens with the least difference fill atom 0, the last of them split if need be.
    """
    cost = DISTANCES[metric](x[:, None], atoms) ** 2
    if len(atoms) == 1:
        return float(np.sqrt(mass @ cost[:, 0]))
    order = np.argsort(cost[:, 0] - cost[:, 1], kind="stable")
    filled = np.cumsum(mass[order])
    first = np.clip(at_first - (filled - mass[order]), 0.0, mass[order])
    return float(np.sqrt(first @ cost[order, 0] + (mass[order] - first) @ cost[order, 1]))


def _nearest_is_own(x: Tokens, target: Tokens) -> bool:
    """Tell whether no token has a target nearer than its own; both metrics order alike."""
    own = np.linalg.norm(x - target, axis=1)
    blocks = [slice(i, i + _ROWS) for i in range(0, len(x), _ROWS)]
    return all((_distances(x[rows], target).min(axis=1) >= own[rows]).all() for rows in blocks)


def _distances(x: Tokens, y: Tokens) -> Array:
    """Return |x_i - y_j|, shape (n, k)."""
    from scipy.spatial.distance import cdist  # most sweeps never come here

    distance: Array = cdist(x, y)
    return distance


def _transport(x: Tokens, mass_x: Masses, y: Tokens, mass_y: Masses, metric: Metric) -> float:
    """W2 by POT's network simplex, exact whether it holds the costs or computes them."""
    import ot  # it takes a second to import, and most sweeps never come here

    large = min(len(x), len(y)) > LARGEST_PLAN
    if large and metric != "chordal":
        message = (
            f"{len(x)} and {len(y)} support points: the {metric} metric needs at most "
            f"{LARGEST_PLAN} in one of them; use chordal, coupling_distance, or fewer tokens"
        )
        raise InputError(message)
    options = {"numItermax": _MOST_PIVOTS, "log": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the log below says the same, and is kept
        if large:
            square, log = ot.lp.emd2_lazy(x, y, mass_x, mass_y, **options)
        else:
            chord = _distances(x, y)
            cost = (chord if metric == "chordal" else 2 * np.arcsin(np.minimum(chord / 2, 1))) ** 2
            square, log = ot.emd2(mass_x, mass_y, cost, **options)
    if log["warning"] is not None:
        message = f"network simplex for {len(x)} and {len(y)} points: {log['warning']}"
        raise TransportError(message)
    return float(np.sqrt(square))
