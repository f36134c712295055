"""How switch times of `aligned` from a uniform start grow with log n: sampling noise decides them.

    python tests/benchmarks/sampling_noise.py [seeds]

The start is symmetric about e but for the noise of n iid tokens, an offset of order n^{-1/2} that
grows like e^{lambda t}, lambda = mu_2 / b_2 - mu_1 / b_1, while W2 falls like e^{-c t} with
c = gap / b_1. They meet at a turnaround that grows by 1 / (2 (lambda + c)) per unit of log n, and
the offset reaches the size of the sphere at a crossover that grows by 1 / (2 lambda).
"""

import argparse

import numpy as np
from scipy.stats import linregress, t

from mfsweep import initial_tokens, simulate, switch_times, weights_with_gap
from mfsweep.analysis.targets import (
    distance_dominant,
    distance_terminal,
    project_dominant,
    separation,
)
from mfsweep.analysis.wasserstein import w2_curve

GAP, B, BETA = 0.5, (2.0, 0.5), 32.0
TOKENS = (256, 512, 1024, 2048, 4096)
TIMES = np.linspace(0.0, 40.0, 161)
RATE = GAP / B[0]
LAMBDA = (1.0 - GAP) / B[1] - 1.0 / B[0]
PREDICTED = {"turnaround": 1.0 / (2.0 * (LAMBDA + RATE)), "crossover": 1.0 / (2.0 * LAMBDA)}


def events(n: int, seed: int) -> dict[str, float]:
    """Turnaround and crossover of one cell, NaN where it is not observed."""
    weights = weights_with_gap(2, GAP, family="aligned", seed=0, b=B)
    x0, mass = initial_tokens(n, 2, seed=seed)
    tokens = simulate(x0, weights, BETA, times=TIMES).tokens
    curves = {
        "w2_metastable": w2_curve(tokens, project_dominant(x0, weights), mass),
        "distance_dominant": distance_dominant(tokens, weights, mass),
        "distance_terminal": distance_terminal(tokens, weights, mass),
    }
    found = switch_times(TIMES, curves, separation=separation(weights), ess_threshold=0.0)
    return {
        name: found[name].value if found[name].status == "observed" else np.nan
        for name in PREDICTED
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="?", default=24)
    seeds = range(parser.parse_args().seeds)
    found = {n: [events(n, 1000 * n + seed) for seed in seeds] for n in TOKENS}
    print(f"beta = {BETA:g}, {len(seeds)} seeds; medians over them")
    for name, predicted in PREDICTED.items():
        times = {n: np.array([cell[name] for cell in cells]) for n, cells in found.items()}
        log_n = np.concatenate([np.full(len(v), np.log(n)) for n, v in times.items()])
        value = np.concatenate(list(times.values()))
        seen = np.isfinite(value)
        fit = linregress(log_n[seen], value[seen])
        reach = t.ppf(0.975, seen.sum() - 2) * fit.stderr
        medians = ", ".join(f"{n}: {np.nanmedian(v):.2f}" for n, v in times.items())
        interval = f"[{fit.slope - reach:.2f}, {fit.slope + reach:.2f}]"
        print(f"{name:10}  {medians}; {(~seen).sum()} not observed")
        print(f"{'':10}  {fit.slope:.2f} {interval} per unit of log n, predicted {predicted:.2f}")


if __name__ == "__main__":
    main()
