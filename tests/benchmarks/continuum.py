"""Time and certify the continuum solver, one thread.

Run from the root: python tests/benchmarks/continuum.py [table] [cold] [work] [tokens] [tail]

table: crossover of G0 and G1 from a uniform start, beta = 5 to 160, at resolution 0.5 and its
       difference from resolution 1, beside the tabulated value where there is one.
cold:  beta = 640 at G0 and beta = 10,000 for aligned weights from a tilted start.
work:  sums per unit of time against beta, aligned weights: the exponent must stay below 1.2.
tokens: crossover of n equispaced tokens at G1, beta = 20, less that of the continuum, n = 125 to
       4000, and the rate at which it falls with n.
tail:  crossover of weighted tokens, aligned weights, tilted start, beta = 905, while they are made
       to follow an ever thinner tail: n equispaced tokens cannot; the continuum beside them.
"""

import os

for library in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import math
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import oracles

from mfsweep import Weights, initial_tokens, simulate, switch_times, weights_with_gap
from mfsweep.analysis.targets import distance_dominant, distance_terminal, separation
from mfsweep.dynamics.continuum import certified_continuum, simulate_continuum
from mfsweep.dynamics.density import VonMises

HORIZON = {5: 16, 10: 18, 20: 22, 40: 40, 80: 90, 160: 185}
ALIGNED = weights_with_gap(2, 0.5, family="aligned", seed=0, b=(2.0, 0.5))
TILTED = VonMises(math.atan2(*ALIGNED.dominant()[::-1, 0]) + 0.5, 1.0)


def given(name):
    return Weights(*(np.array(matrix) for matrix in oracles.GIVEN[name]))


def crossover(run, weights):
    distances = []
    for k in range(len(run.times)):
        mass = run.mass(k)
        distances.append(
            [
                distance(run.tokens[k], weights, mass)
                for distance in (distance_dominant, distance_terminal)
            ]
        )
    return event(run.times, *np.array(distances).T, weights)


def of_particles(times, x, mass, weights):
    distances = (distance(x, weights, mass) for distance in (distance_dominant, distance_terminal))
    return event(times, *distances, weights)


def event(times, dominant, terminal, weights):
    measured = {
        "w2_metastable": np.ones_like(dominant),
        "distance_dominant": dominant,
        "distance_terminal": terminal,
    }
    events = switch_times(times, measured, separation=separation(weights), ess_threshold=0.0)
    return events["crossover"]


def certified(law, weights, beta, end, step=0.05):
    """Crossover at resolution 0.5, its difference from resolution 1, seconds, the finer run."""
    times = step * np.arange(round(end / step) + 1)
    began = time.perf_counter()
    pair = certified_continuum(law, weights, beta, times=times)
    seconds = time.perf_counter() - began
    fine, coarse = (crossover(run, weights) for run in (pair.fine, pair.coarse))
    return fine, fine.value - coarse.value, seconds, pair.fine


def table():
    print(
        f"{'':4} {'beta':>5} {'tabulated':>16} {'crossover':>10} {'error':>8} {'steps':>6} {'s':>6}"
    )
    for name in ("G0", "G1"):
        for beta, end in HORIZON.items():
            fine, error, seconds, run = certified(VonMises(), given(name), beta, end)
            value, within = oracles.CONTINUUM.get((name, beta), (math.nan, math.nan))
            print(
                f"{name:4} {beta:5d} {value:8.3f} +- {within:4.2f} {fine.value:10.3f} {error:8.4f} "
                f"{run.stats.steps:6d} {seconds:6.1f}",
                flush=True,
            )


def cold():
    for name, law, weights, beta, end in (
        ("G0", VonMises(), given("G0"), 640.0, 800.0),
        ("aligned, tilted", TILTED, ALIGNED, 10_000.0, 60.0),
    ):
        fine, error, seconds, run = certified(law, weights, beta, end, step=0.25)
        print(
            f"{name}, beta = {beta:g}, to t = {end:g}: crossover {fine.value:.3f} ({fine.status}), "
            f"from resolution 1: {error:.3f}; {max(map(len, run.edges))} edges, "
            f"{run.stats.steps} steps, {seconds:.0f} s",
            flush=True,
        )


def work():
    betas, end = np.array([400.0, 1600.0, 6400.0, 10_000.0]), 20.0
    times, rows = np.linspace(0, end, 16), []
    for beta in betas:
        began = time.perf_counter()
        run = simulate_continuum(TILTED, ALIGNED, beta, times=times)
        rows.append((run.stats.pairs_computed / end, (time.perf_counter() - began) / end))
        print(f"beta = {beta:6g}: {rows[-1][0]:.3g} sums and {rows[-1][1]:.3f} s per unit of time")
    for name, column in zip(("sums", "seconds"), np.log(rows).T, strict=True):
        print(f"{name} grow like beta^{np.polyfit(np.log(betas), column, 1)[0]:.2f}")


def tokens():
    weights, times = given("G1"), 0.05 * np.arange(441)
    fine, error, *_ = certified(VonMises(), weights, 20.0, 22.0)
    print(f"the continuum: {fine.value:.4f}, from resolution 1: {error:.4f}")
    counts, errors = 125 * 2 ** np.arange(6), []
    for n in counts:
        x0, mass = initial_tokens(int(n), 2, sampling="equispaced", seed=0)
        found = simulate(x0, weights, 20.0, times=times, rtol=1e-8, atol=1e-11).tokens
        errors.append(of_particles(times, found, mass, weights).value - fine.value)
        print(f"{n:5d} equispaced tokens: {errors[-1]:+.4f}", flush=True)
    print(f"falls like n^{np.polyfit(np.log(counts), np.log(np.abs(errors)), 1)[0]:.2f}")


def halved(angles, found, widest):
    """The initial angles, with one more between any two tokens that come to lie far apart."""
    theta = np.arctan2(found[..., 1], found[..., 0])
    apart = np.diff(np.append(theta, theta[:, :1], axis=1), axis=1)
    apart = np.abs((apart + np.pi) % (2 * np.pi) - np.pi).max(axis=0)
    room = np.diff(np.append(angles, angles[0] + 2 * np.pi))
    between = (angles + room / 2)[(apart > widest) & (room > 4e-15)]  # doubles end there
    return np.unique(np.append(angles, between))


def tail(beta=905.0):
    times, held = 0.125 * np.arange(321), 17.0
    angles = np.linspace(-np.pi, np.pi, 1500, endpoint=False)
    for halvings in range(41):
        width = (np.roll(angles, -1) - np.roll(angles, 1)) % (2 * np.pi) / 2
        x0 = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        mass = np.exp(TILTED.log(angles)) * width
        mass /= mass.sum()
        found = simulate(x0, ALIGNED, beta, times=times, mass=mass).tokens
        if halvings % 5 == 0:
            value = of_particles(times, found, mass, ALIGNED).value
            print(
                f"{len(angles):5d} tokens, least log-mass {np.log(mass.min()):6.1f}: {value:.3f}",
                flush=True,
            )
        angles = halved(angles, found[times <= held], 0.5 / math.sqrt(2 * beta))
    fine, error, *_ = certified(TILTED, ALIGNED, beta, times[-1], step=0.125)
    print(f"the continuum: {fine.value:.3f}, from resolution 1: {error:.3f}")


def main():
    modes = {"table": table, "cold": cold, "work": work, "tokens": tokens, "tail": tail}
    for name in sys.argv[1:] or modes:
        modes[name]()


if __name__ == "__main__":
    main()
