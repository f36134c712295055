"""Calibrate the threshold of `under_resolved` on a run whose n_tokens double.

    snakemake --cores 2 --configfile config/resolution.yaml
    python tests/benchmarks/resolution.py [results/resolution ...]

An event is right where it lies within 5 % of its converged value: that of the continuum where the
run holds it (n_tokens = inf), else that of the largest n if the two largest agree within 5 %. What
has not converged is wrong where doubling n changes it by more than 5 %. A converged event that is
censored or absent makes every observed one wrong; one that is under-resolved itself tells nothing.

Starts must be spread evenly (initial.sampling qmc or equispaced). Of iid ones the table by n_tokens
shows the noise of sampling, which no resolution removes: it falls like n^{-1/2}, is the same at
every beta, and is what the seeds' interval of a law is for.
"""

import argparse

import numpy as np
import xarray as xr

from mfsweep import open_results
from mfsweep._types import STATUSES
from mfsweep.analysis.switching import ESS_THRESHOLD

ESTIMATORS = ("turnaround", "crossover")
NEAR = 0.05
THRESHOLDS = (3, 6, 12, 18, 25, 35, 50, 75, 100)
SEEN = [STATUSES.index(name) for name in ("observed", "under_resolved")]


def least_ess(curves: xr.Dataset, time: float) -> float:
    """Least median ess up to the first saved time at or after an event."""
    last = int(np.searchsorted(curves.time.values, time))
    return float(curves.ess_median.values[: last + 1].min())


def same(one: float, other: float) -> bool:
    return abs(one - other) <= NEAR * abs(other)


def judged(values: np.ndarray, tokens: np.ndarray) -> list[bool | None]:
    """Whether each value (NaN: no event) is right; None where that cannot be told."""
    finite = np.isfinite(tokens)
    if not finite.all():
        limit = values[~finite][0]
        return [None if np.isnan(v) else bool(same(v, limit)) for v in values[finite]]
    last, before = values[-1], values[-2]
    if same(last, before):
        return [None if np.isnan(v) else same(v, last) for v in values]
    doubled = [*values[1:], np.nan]
    return [
        False if not (np.isnan(v) or same(v, w)) and not np.isnan(w) else None
        for v, w in zip(values, doubled, strict=True)
    ]


def cells(folder: str):
    """Yield (family, d, beta, estimator, n, value, least ess, right) of every event."""
    tree = open_results(folder)
    switches, curves = tree["switch_times"].to_dataset(), tree["curves"].to_dataset()
    dims = ("family", "d", "gap", "beta", "estimator")
    for index in np.ndindex(*(switches.sizes[dim] for dim in dims)):
        at = dict(zip(dims, index, strict=True))
        if switches.estimator.values[at["estimator"]] not in ESTIMATORS:
            continue
        found = switches.isel(at)
        place = {dim: k for dim, k in at.items() if dim != "estimator"}
        for seed in range(found.sizes["seed"]):
            of_seed = found.isel(seed=seed)
            known = of_seed.status.values != STATUSES.index("missing")
            limit = ~np.isfinite(found.n_tokens.values)  # the continuum knows one seed
            known |= limit & (found.status.values != 0).any(
                axis=list(found.status.dims).index("seed")
            )
            if known.sum() < 2:
                continue
            tokens = found.n_tokens.values[known]
            values = np.where(
                np.isin(of_seed.status.values, SEEN), of_seed.switch_time.values, np.nan
            )
            if limit.any():
                first = found.isel(seed=0, n_tokens=int(limit.argmax()))
                if int(first.status) == STATUSES.index("under_resolved"):
                    break
                observed = int(first.status) == STATUSES.index("observed")
                values[limit] = first.switch_time if observed else np.nan
            values = values[known]
            for n, value, right in zip(tokens, values, judged(values, tokens), strict=False):
                if np.isfinite(n) and not np.isnan(value):
                    one = curves.isel(place).isel(seed=seed).sel(n_tokens=n)
                    yield (
                        *(found[name].item() for name in ("family", "d", "beta", "estimator")),
                        n,
                        value,
                        least_ess(one, value),
                        right,
                    )


def summarise(rows: list[tuple], title: str) -> None:
    """Print for each threshold how many unflagged events are right, how many wrong are flagged."""
    ess = np.array([row[-2] for row in rows])
    right = np.array([row[-1] for row in rows])
    print(f"\n{title}: {right.sum()} right, {(~right).sum()} wrong")
    print("threshold  without flag  of them right  with flag  wrong ones flagged")
    for threshold in THRESHOLDS:
        flagged = ess < threshold
        clean = right[~flagged].mean() if (~flagged).any() else np.nan
        caught = flagged[~right].mean() if (~right).any() else np.nan
        counts = f"{threshold:9d}  {(~flagged).sum():12d}  {clean:13.1%}  {flagged.sum():9d}"
        print(f"{counts}  {caught:18.1%}")


def by_tokens(rows: list[tuple], title: str) -> None:
    """Print for each n_tokens how many unflagged events are right, at the default threshold."""
    print(f"\n{title}, threshold {ESS_THRESHOLD:g}")
    print("n_tokens  without flag  of them right  wrong ones flagged")
    for n in sorted({row[4] for row in rows}):
        part = [(row[7], row[6] < ESS_THRESHOLD) for row in rows if row[4] == n]
        right, flagged = np.transpose(part)
        clean = right[~flagged].mean() if (~flagged).any() else np.nan
        caught = f"{flagged[~right].sum()} of {(~right).sum()}"
        print(f"{n:8.0f}  {(~flagged).sum():12d}  {clean:13.1%}  {caught}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", default=["results/resolution"])
    rows = [row for folder in parser.parse_args().folders for row in cells(folder)]
    print("family     d    beta  event       n_tokens     time  least ess  right")
    for family, d, beta, estimator, n, value, ess, right in rows:
        verdict = {True: "yes", False: "no", None: "cannot be told"}[right]
        event = f"{family:8} {d:3d} {beta:7.4g}  {estimator:10} {n:9.0f}"
        print(f"{event} {value:8.3f} {ess:10.1f}  {verdict}")
    known = [row for row in rows if row[-1] is not None]
    summarise(known, "all events")
    by_tokens(known, "all events")
    for d in sorted({row[1] for row in known}):
        for estimator in ESTIMATORS:
            part = [row for row in known if row[1] == d and row[3] == estimator]
            if part:
                summarise(part, f"{estimator}, d = {d}")


if __name__ == "__main__":
    main()
