"""Run one cell, measure one cell: no input or output."""

import math
import time
from functools import lru_cache

import numpy as np

from mfsweep._types import Array, Masses, Tokens
from mfsweep.analysis.targets import distance_dominant, distance_terminal, project_dominant
from mfsweep.analysis.wasserstein import coupling_distance, w2_curve
from mfsweep.dynamics.given import load_given
from mfsweep.dynamics.initial import initial_tokens
from mfsweep.dynamics.simulate import Keep, Trajectory, simulate
from mfsweep.dynamics.weights import Weights, weights_with_gap
from mfsweep.sweep.config import Config, Family, File
from mfsweep.sweep.grid import Cell, Shard, given, times
from mfsweep.sweep.streams import token_stream, weights_stream


def weights_of(config: Config, place: Shard | Cell) -> Weights:
    """Return the weights at a shard's family, d and gap: drawn, or read from a file."""
    return _weights(config.families[place.family], place.d, place.gap)


@lru_cache(maxsize=32)
def _weights(options: Family, d: int, gap: float) -> Weights:
    if isinstance(options, File):
        return load_given(options.path, options.span, options.scale).weights
    drawn = options.model_dump(exclude={"kind", "weights_seed"})
    stream = weights_stream(options.weights_seed, d, gap)
    return weights_with_gap(d, gap, family=options.kind, seed=stream, **drawn)


def start(config: Config, shard: Shard | Cell, seed: int) -> tuple[Tokens, Masses]:
    """Return the initial tokens and masses of one seed; they do not depend on beta."""
    initial = config.initial
    source = given(config, shard) if initial.path is not None else None
    return initial_tokens(
        int(shard.n_tokens),
        shard.d,
        distribution=initial.distribution,
        sampling=initial.sampling,
        seed=token_stream(seed, shard.d, shard.gap),
        direction=None if initial.tilt is None else direction(config, shard, initial.tilt),
        kappa=initial.kappa,
        components=[
            (c.weight, direction(config, shard, c.tilt), c.kappa) for c in initial.components
        ],
        path=initial.path,
        basis=None if source is None else source.basis,
    )


def direction(config: Config, place: Shard | Cell, angle: float) -> Array:
    """Turn e by an angle towards the coordinate axis that it is farthest from."""
    e = weights_of(config, place).dominant()[:, 0]
    axis = np.eye(len(e))[np.abs(e).argmin()]
    across = axis - (axis @ e) * e
    turned: Array = np.cos(angle) * e + np.sin(angle) * across / np.linalg.norm(across)
    return turned


def _simulated(
    config: Config, place: Shard | Cell, seed: int, beta: float, keep: Keep | None
) -> Trajectory:
    """Simulate one seed of a family, d, gap and n_tokens at one beta, as the config says."""
    tokens, mass = start(config, place, seed)
    solver = config.solver
    return simulate(
        tokens,
        weights_of(config, place),
        beta,
        times=times(config.time),
        mass=mass,
        method=solver.method,
        rtol=solver.rtol,
        atol=solver.atol,
        step=solver.step,
        merge_radius=solver.merge_radius,
        keep=keep,
    )


def run_cell(config: Config, cell: Cell, keep: Keep | None = None) -> tuple[Trajectory, Array]:
    """Simulate one cell; return its trajectory and its stats in the order of STAT_NAMES."""
    began = time.perf_counter()
    run = _simulated(config, cell, cell.seed, cell.beta, keep)
    counts = run.stats
    stats = [
        counts.steps,
        counts.rejected,
        counts.drift_evaluations,
        counts.pairs_computed,
        counts.pairs_skipped,
        time.perf_counter() - began,
    ]
    return run, np.array(stats, dtype=np.float64)


def zero_temperature_flow(
    config: Config, shard: Shard, seed: int, keep: Keep | None = None
) -> Trajectory:
    """Run the zero-temperature flow from one seed's initial tokens."""
    return _simulated(config, shard, seed, math.inf, keep)


def w2_zero_temperature(config: Config, shard: Shard, seed: int, reference: Array) -> Array:
    """Measure exact W2 from the zero-temperature flow to the target; NaN without one; (time,)."""
    weights = weights_of(config, shard)
    if not weights.has_target:
        return np.full(len(reference), np.nan)
    initial, mass = start(config, shard, seed)
    return w2_curve(reference, project_dominant(initial, weights), mass)


def measure_cell(
    tokens: Array,
    mass: Masses,
    weights: Weights,
    initial: Tokens,
    reference: Array,
    beta: float,
) -> dict[str, Array]:
    """Measure every curve of one trajectory but ess and those of the zero-temperature flow.

    Parameters
    ----------
    tokens
        Trajectory, shape (time, n, d).
    mass
        Shape (n,).
    weights
        V and B.
    initial
        Tokens at time 0, shape (n, d).
    reference
        Zero-temperature trajectory from the same tokens, shape (time, n, d).
    beta
        Inverse temperature.

    Returns
    -------
    dict of str to Array
        Curves by the names of CURVES, each of shape (time,).
    """
    return {
        **_metastable_curves(tokens, mass, weights, initial),
        "distance_terminal": distance_terminal(tokens, weights, mass),
        "distance_terminal_modulus": distance_terminal(tokens, weights, mass, "modulus"),
        "w2_stability": coupling_distance(tokens, reference, mass),
        "log_energy": _log_energy(tokens, mass, weights, beta),
    }


def _metastable_curves(
    tokens: Array, mass: Masses, weights: Weights, initial: Tokens
) -> dict[str, Array]:
    """Measure distances to the metastable target and to E; NaN where there are none."""
    if not weights.has_target:
        nothing = np.full(len(tokens), np.nan)
        names = ("w2_metastable", "w2_coupling", "distance_dominant")
        return dict.fromkeys(names, nothing)
    target = project_dominant(initial, weights)
    return {
        "w2_metastable": w2_curve(tokens, target, mass),
        "w2_coupling": coupling_distance(tokens, target, mass),
        "distance_dominant": distance_dominant(tokens, weights, mass),
    }


def _log_energy(tokens: Array, mass: Masses, weights: Weights, beta: float) -> Array:
    """Log of sum_ij w_i w_j e^{beta <x_i, x_j>} where V = B = I and beta is finite, else NaN."""
    curve = np.full(len(tokens), np.nan)
    identity = np.eye(weights.d)
    if math.isinf(beta) or not ((identity == weights.V).all() and (identity == weights.B).all()):
        return curve
    for k, x in enumerate(tokens):
        blocks = [slice(i, i + 256) for i in range(0, len(x), 256)]
        parts = [mass[rows] @ np.exp(beta * (x[rows] @ x.T - 1.0)) @ mass for rows in blocks]
        curve[k] = beta + math.log(sum(parts))
    return curve
