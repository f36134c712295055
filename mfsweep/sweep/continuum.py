"""Run and measure one cell of the continuum: no input or output."""

import math
import time

import numpy as np

from mfsweep._types import Array, Masses, Tokens
from mfsweep.analysis.targets import distance_dominant, distance_terminal
from mfsweep.analysis.wasserstein import coupling_distance, w2
from mfsweep.dynamics.continuum import ContinuumTrajectory, certified_continuum
from mfsweep.dynamics.density import Density, Mixture, VonMises
from mfsweep.dynamics.orbits import Orbits
from mfsweep.dynamics.sphere import chordal
from mfsweep.dynamics.weights import Weights
from mfsweep.sweep.cell import direction, weights_of
from mfsweep.sweep.config import Config
from mfsweep.sweep.grid import Cell, Shard, times
from mfsweep.sweep.layout import COARSE


def initial_density(config: Config, place: Shard | Cell) -> Density:
    """Return the density on the circle that `start` draws tokens from."""
    initial = config.initial

    def part(kappa: float, tilt: float) -> VonMises:
        x, y = direction(config, place, tilt)
        return VonMises(math.atan2(y, x), kappa)

    if initial.kappa is not None and initial.tilt is not None:
        return part(initial.kappa, initial.tilt)
    if initial.components:
        parts = tuple(part(c.kappa, c.tilt) for c in initial.components)
        return Mixture(parts, tuple(c.weight for c in initial.components))
    return VonMises()


def run_continuum(config: Config, cell: Cell) -> dict[str, Array]:
    """Run one cell at two resolutions and measure both.

    Parameters
    ----------
    config
        Its `solver.resolution` is that of the finer run.
    cell
        With d = 2 and n_tokens infinite.

    Returns
    -------
    dict of str to Array
        `density` (time, theta), every curve of CURVES and of COARSE (time,), and `stats`, the
        finer run's counts and the seconds of both, in the order of STAT_NAMES.
    """
    began = time.perf_counter()
    weights, solver = weights_of(config, cell), config.solver
    pair = certified_continuum(
        initial_density(config, cell),
        weights,
        cell.beta,
        times=times(config.time),
        resolution=solver.resolution,
        rtol=solver.rtol,
        atol=solver.atol,
    )
    curves = measure_continuum(pair.fine, weights)
    coarse = measure_distances(pair.coarse, weights)
    curves |= {name: coarse[name.removesuffix("_coarse")] for name in COARSE}
    counts = pair.fine.stats
    stats = [
        counts.steps,
        counts.rejected,
        counts.drift_evaluations,
        counts.pairs_computed,
        counts.pairs_skipped,
        time.perf_counter() - began,
    ]
    return {"density": pair.fine.density, **curves, "stats": np.array(stats, dtype=np.float64)}


def measure_continuum(run: ContinuumTrajectory, weights: Weights) -> dict[str, Array]:
    """Measure every curve of one run from the masses of its mesh.

    Parameters
    ----------
    run
        Masses at points, at the saved times.
    weights
        V and B of the run.

    Returns
    -------
    dict of str to Array
        Curves by the names of CURVES, each of shape (time,): ess is infinite, log_energy NaN.

    Notes
    -----
    W2 to the target is exact for the masses at points; masses below e^{-745} read as 0.
    w2_stability follows mass elements through the cells: at resolution 0.5 it agrees with
    particles to 3e-4, and where it should vanish it is below 3e-3.
    """
    orbits = Orbits(weights)
    stability, cold = np.transpose([_cold(run, k, orbits) for k in range(len(run.times))])
    endless = np.full(len(run.times), np.inf)
    return {
        **measure_distances(run, weights),
        "w2_stability": stability,
        "w2_zero_temperature": cold,
        "log_energy": np.full(len(run.times), np.nan),
        "ess_median": endless,
        "ess_min": endless,
    }


def measure_distances(run: ContinuumTrajectory, weights: Weights) -> dict[str, Array]:
    """Measure the distances to the metastable target and to the eigenspaces, each (time,)."""
    rows = [_distances(run, k, weights) for k in range(len(run.times))]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _distances(run: ContinuumTrajectory, k: int, weights: Weights) -> dict[str, float]:
    """Measure the distances at one time."""
    mass = run.mass(k)
    kept = mass > 0
    x, mass, plus = run.tokens[k][kept], mass[kept], run.plus_share[k][kept]
    to_plus, to_minus = (chordal(x, atom) ** 2 for atom in (run.e, -run.e))
    return {
        "w2_metastable": _to_target(run, x, mass),
        "w2_coupling": math.sqrt(mass @ (plus * to_plus + (1 - plus) * to_minus)),
        "distance_dominant": float(distance_dominant(x, weights, mass)),
        "distance_terminal": float(distance_terminal(x, weights, mass)),
        "distance_terminal_modulus": float(distance_terminal(x, weights, mass, "modulus")),
    }


def _to_target(run: ContinuumTrajectory, x: Tokens, mass: Masses) -> float:
    """Return W2 to the metastable target: masses `plus` at e and 1 - plus at -e."""
    atoms, shares = np.stack([run.e, -run.e]), np.array([run.plus, 1 - run.plus])
    there = shares > 0
    return w2(x, atoms[there], mass_x=mass, mass_y=shares[there])


def _cold(run: ContinuumTrajectory, k: int, orbits: Orbits) -> tuple[float, float]:
    """Return distances of the zero-temperature flow at one time: from the run, to the target."""
    here, began = (
        np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        for angle in (run.followed(k), run.element_angle)
    )
    cold = orbits(began, run.times[k])
    mass = run.element_mass
    return float(coupling_distance(here, cold, mass)), _to_target(run, cold, mass)
