"""Print the numbers of README's tables from the stores of finished runs, as Markdown.

Run from the root, after snakemake --cores 2 --configfile config/RUN.yaml:
python tests/benchmarks/readme.py results/RUN ...

First table: slopes per unit of log beta with 95 % intervals, over all cells and over the beta at
which every cell is resolved, and the share of the evidence for the law in beta, of either.
Second table: medians over the seeds at each beta; a star: under-resolved, >: censored.
Third table: W2 to the metastable target at its least, at each beta; at the last time W2 from the
zero-temperature flow to it, and the distances to V's dominant eigenspace of largest real part and
of largest modulus at each beta; medians over the seeds.
"""

import sys

import numpy as np
import xarray as xr

from mfsweep._types import STATUSES
from mfsweep.report.words import number
from mfsweep.sweep.layout import RESOLVED

PLACE = ("family", "d", "gap", "n_tokens")
ESTIMATORS = ("turnaround", "crossover")
COUNTED = ("observed", "censored", "absent", "under_resolved", "missing")


def table(heads, rows):
    yield "| " + " | ".join(heads) + " |"
    yield "|" + len(heads) * "---|"
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def slope(law, cells=""):
    value, low, high = (law[f"{cells}slope{end}"].item() for end in ("", "_low", "_high"))
    if np.isnan(value):
        return "–"  # noqa: RUF001
    within = "" if np.isnan(low) else f" [{number(low, 3)}, {number(high, 3)}]"
    return number(value, 3) + within


def share(percent):
    return number(percent, 6 if percent > 50 else 2)  # how far from 0 or 100


def places(dataset):
    """Each (family, d, gap, n_tokens) that the run asked for, and its part of the dataset."""
    stacked = dataset.stack(place=PLACE)
    for at in stacked.place.values:
        yield at, dataset.sel(dict(zip(PLACE, at, strict=True)))


def named(place):
    family, d, gap, n_tokens = place
    return [family, str(d), number(gap), number(n_tokens, 8)]


def law_rows(laws):
    for place, here in places(laws):
        for estimator in ESTIMATORS:
            log, linear = (here.sel(estimator=estimator, law=law) for law in ("log", "linear"))
            counts = dict(zip(STATUSES, log.counts.values, strict=True))
            if not sum(counts.values()):
                continue
            yield [
                *named(place),
                estimator,
                slope(log),
                slope(log, RESOLVED),
                number(log.predicted_slope.item(), 3),
                *(share(100 * linear[f"{cells}evidence"].item()) for cells in ("", RESOLVED)),
                " / ".join(str(counts[status]) for status in COUNTED),
            ]


def time_rows(switches):
    for place, here in places(switches):
        for estimator in ESTIMATORS:
            found = here.sel(estimator=estimator)
            status = found.status.values
            if (status == STATUSES.index("missing")).all():
                continue
            times = [median(found.switch_time.values[k], status[k]) for k in range(found.beta.size)]
            yield [*named(place), estimator, *times]


def curve_rows(curves):
    for place, here in places(curves):
        middle = here.median("seed")
        least = middle.w2_metastable.min("time")
        if not np.isfinite(least).any():
            continue
        last = middle.isel(time=-1)
        shown = (last.distance_terminal, last.distance_terminal_modulus)
        zero = last.w2_zero_temperature.median()
        yield [*named(place), *map(listed, (least.values, zero.values, *shown))]


def listed(values):
    return ", ".join(f"{value:.2f}" for value in np.atleast_1d(values) if np.isfinite(value))


def median(values, status):
    """The median of the seeds' times at one beta; lower bounds count as such."""
    stars = {"under_resolved": "*", "censored": ">"}
    names = np.array(STATUSES)[status.astype(int)]
    timed = (names != "missing") & (names != "absent")
    if not timed.any():
        return "absent" if "absent" in names else ""
    marks = "".join(mark for name, mark in stars.items() if name in names)
    return number(float(np.median(values[timed])), 4) + marks


def main():
    for folder in sys.argv[1:]:
        laws, switches, curves = (
            xr.open_zarr(f"{folder}/{name}.zarr", consolidated=False).load()
            for name in ("laws", "switch_times", "curves")
        )
        print(f"\n{folder}\n")
        heads = [*PLACE, "estimator", "slope", "resolved slope", "predicted"]
        shares = ["evidence for β (%)", "of the resolved β (%)", " / ".join(COUNTED)]
        print("\n".join(table([*heads, *shares], law_rows(laws))), end="\n\n")
        betas = [f"β = {number(beta)}" for beta in switches.beta.values]
        print("\n".join(table([*PLACE, "estimator", *betas], time_rows(switches))), end="\n\n")
        shown = ["least W2", "of the zero-temperature flow"]
        heads = [*PLACE, *shown, "to V (real part)", "to V (modulus)"]
        print("\n".join(table(heads, curve_rows(curves))))


if __name__ == "__main__":
    main()
