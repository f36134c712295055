"""Coverage of the slope's 95 % interval over simulated sweeps.

Switch times 3 + 2 log beta + seed effect + noise, both of standard deviation 1, at seven geometric
beta from 8 to 512; one last time censors the wanted share of the cells. Beside the fit stands the
naive one, which drops the censored cells.
"""

import argparse
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from mfsweep.analysis.laws import LawFit, fit_law

BETA = np.geomspace(8.0, 512.0, 7)
SLOPE, INTERCEPT, SIGMA, SIGMA_SEED = 2.0, 3.0, 1.0, 1.0


@dataclass(frozen=True)
class Sweep:
    beta: np.ndarray
    time: np.ndarray
    status: np.ndarray
    seed: np.ndarray

    def fit(self, *, drop_censored: bool = False) -> LawFit:
        keep = (self.status == "observed") | (not drop_censored)
        return fit_law(self.beta[keep], self.time[keep], self.status[keep], self.seed[keep])


def last_time(share: float) -> float:
    """The time beyond which the given share of all events lies."""
    mean, spread = INTERCEPT + SLOPE * np.log(BETA), np.hypot(SIGMA, SIGMA_SEED)
    return (
        brentq(lambda t: norm.sf(t, mean, spread).mean() - share, -20.0, 60.0) if share else np.inf
    )


def simulate_sweep(rng: np.random.Generator, seeds: int, share: float) -> Sweep:
    beta, seed = np.tile(BETA, seeds), np.repeat(np.arange(seeds), BETA.size)
    effect = SIGMA_SEED * rng.standard_normal(seeds)[seed] + SIGMA * rng.standard_normal(beta.size)
    time, end = INTERCEPT + SLOPE * np.log(beta) + effect, last_time(share)
    return Sweep(beta, np.minimum(time, end), np.where(time > end, "censored", "observed"), seed)


def study(repetitions: int, seeds: int, share: float) -> dict[str, float]:
    """Coverage, bias and spread of the slope over seeded repetitions that have one."""
    rng = np.random.default_rng([seeds, round(100 * share)])
    sweeps = [simulate_sweep(rng, seeds, share) for _ in range(repetitions)]
    fits = [sweep.fit() for sweep in sweeps]
    naive = [sweep.fit(drop_censored=True) for sweep in sweeps]
    slope = np.array([fit.slope for fit in fits])
    return {
        "coverage": coverage(fits),
        "bias": np.nanmean(slope) - SLOPE,
        "spread": np.nanstd(slope),
        "half-width": np.nanmedian([fit.slope_high - fit.slope for fit in fits]),
        "naive coverage": coverage(naive),
        "naive bias": np.nanmean([fit.slope for fit in naive]) - SLOPE,
        "no slope": np.mean(np.isnan(slope)),
        "naive no slope": np.mean([np.isnan(fit.slope) for fit in naive]),
    }


def coverage(fits: list[LawFit]) -> float:
    """Share of the intervals that hold the slope; one that is NaN holds nothing."""
    return float(np.mean([fit.slope_low <= SLOPE <= fit.slope_high for fit in fits]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repetitions", type=int, nargs="?", default=2000)
    repetitions = parser.parse_args().repetitions
    for seeds, share in product((4, 8, 16), (0.0, 0.3, 0.6)):
        row = study(repetitions, seeds, share)
        if (seeds, share) == (4, 0.0):
            print("seeds  censored  " + "  ".join(row))
        cells = (f"{number:{len(name)}.3f}" for name, number in row.items())
        print(f"{seeds:5d}  {share:8.0%}  " + "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
