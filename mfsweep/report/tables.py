"""Tables of the report, as HTML and as CSV."""

import base64
import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import xarray as xr

from mfsweep._types import STATUSES
from mfsweep.plotting.panels import Panel
from mfsweep.report.words import counts, interval, number, verdict
from mfsweep.sweep.failures import failures
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import Shard
from mfsweep.sweep.layout import DONE, FAILED, STATE_NAMES
from mfsweep.sweep.store import cell_states

_PLACE = ("family", "d", "gap", "tokens")
_MOST_CELLS = 200
_LONG, _WRAPPED = 40, ' class="wrapped"'


@dataclass(frozen=True)
class Table:
    """A table of text.

    Parameters
    ----------
    name
        Short name, used for ids and for the CSV file.
    caption
        What the table shows.
    heads
        Column heads.
    rows
        Rows of as many cells; the first cell heads its row.
    """

    name: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def html(self) -> str:
        """Return the table in a container that scrolls by itself, with its CSV to download."""
        heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in self.heads)
        body = "\n".join(_row(row) for row in self.rows)
        return (
            f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{self.name}-caption">'
            f'\n<table id="{self.name}">\n<caption id="{self.name}-caption">'
            f"<span>{escape(self.caption)}</span></caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"
            f'</div>\n<p><a download="{self.name}.csv" href="{self._csv()}">'
            f"Download {self.name}.csv</a></p>"
        )

    def _csv(self) -> str:
        text = io.StringIO()
        csv.writer(text).writerows([self.heads, *self.rows])
        plain = text.getvalue().replace("−", "-").replace("–", "").replace("∞", "inf")  # noqa: RUF001
        return f"data:text/csv;base64,{base64.b64encode(plain.encode()).decode()}"


def _row(cells: Sequence[str]) -> str:
    first, *others = cells
    data = "".join(
        f"<td{_WRAPPED if len(cell) > _LONG else ''}>{escape(cell)}</td>" for cell in others
    )
    return f'<tr><th scope="row">{escape(first)}</th>{data}</tr>'


def _place(shard: Shard) -> tuple[str, ...]:
    return (shard.family, str(shard.d), number(shard.gap), number(shard.n_tokens, 8))


def laws_table(panels: Iterable[Panel]) -> Table:
    """Tabulate every law of every shard that has a known cell."""
    rows = []
    for panel in panels:
        for estimator in panel.laws.estimator.values:
            for name in panel.laws.law.values:
                law = panel.laws.sel(estimator=estimator, law=name)
                found = counts(law)
                ends = (law[f"slope_without_one_{end}"].item() for end in ("low", "high"))
                without = " to ".join(number(end) for end in ends)
                rows.append(
                    (
                        *_place(panel.shard),
                        str(estimator),
                        "log beta" if name == "log" else "beta",
                        number(law.slope.item()),
                        interval(law),
                        number(law.predicted_slope.item()),
                        verdict(law),
                        *(str(found[status]) for status in STATUSES),
                        number(law.aic.item()),
                        number(law.evidence.item(), 3),
                        without if np.isfinite(law.slope_without_one_low) else number(np.nan),
                    )
                )
    heads = (*_PLACE, "estimator", "law in", "slope", "95 % interval", "predicted slope")
    numbers = (status.replace("_", "-") for status in STATUSES)
    return Table(
        "laws",
        "Laws of the switch times: slope per unit of log beta or of beta, time being "
        "dimensionless; AIC is comparable between the two laws of one estimator, and the evidence "
        "is its Akaike weight; the slope without one beta is the range of fits that each leave one "
        "out; the counts are cells by status.",
        (*heads, "verdict", *numbers, "AIC", "evidence", "slope without one beta"),
        tuple(rows),
    )


def assumptions_table(panels: Iterable[Panel]) -> Table:
    """Tabulate what the theory assumes of the weights, once per (family, d, gap)."""
    rows = {}
    for panel in panels:
        found = panel.weights.assumptions()
        numbers = (
            found.condition_B,
            found.rank_B,
            found.asymmetry,
            found.gap,
            found.multiplicity,
            found.norm_BTe,
            found.rate,
            found.misalignment,
            np.degrees(found.angle),
        )
        place = _place(panel.shard)[:3]
        violated = ", ".join(found.violated)
        rows[place] = (
            *place,
            *(_small(value) for value in numbers),
            _eigenvalue(found.spectrum_A[0]),
            number(panel.own_beta),
            f"violated: {violated}" if violated else "none violated",
        )
    heads = (
        "condition of B",
        "rank of B",
        "asymmetry of A",
        "measured gap",
        "multiplicity of E",
        "|Bᵀe|",
    )
    others = (
        *("rate c", "misalignment Δ", "angle of E to V's eigenspace (degrees)"),
        *("dominant eigenvalue of A", "own beta", "assumptions"),
    )
    return Table(
        "assumptions",
        "Assumption 1 of arXiv 2605.10931 checked for every weight pair: B invertible, A = VBᵀ "
        "symmetric, gap positive; c = gap / |Bᵀe|; Δ = |Bᵀe| − ⟨e, Be⟩ is 0 where the crossover "  # noqa: RUF001
        "can follow log beta; own beta is that of a trained head in the sweep's units.",
        (*_PLACE[:3], *heads, *others),
        tuple(rows.values()),
    )


def _eigenvalue(value: complex) -> str:
    """Write an eigenvalue, and whether it is real or one of a pair."""
    if not value.imag:
        return f"{number(value.real)}, real"
    return f"{number(value.real)} ± {number(abs(value.imag))} i, complex"


def _small(value: float) -> str:
    """Write a number that is 0 in exact arithmetic as the bound that roundoff allows."""
    return "< 1e−12" if 0 < abs(value) < 1e-12 else number(value)  # noqa: RUF001


_POWER_AT = (0.125, 0.25, 0.5)
"""Shares of the last time at which the power of beta is tabulated."""


def bound_table(panels: Iterable[Panel]) -> Table:
    """Tabulate the measured rates of Theorem 1's two terms beside what is predicted of them."""
    rows, heads = [], [""] * len(_POWER_AT)
    for panel in panels:
        found, growth = panel.bound, panel.bound.growth_rate.values
        at = [round(share * (found.time.size - 1)) for share in _POWER_AT]
        heads = [f"power of beta at t = {found.time.values[k]:g}" for k in at]
        known = growth[np.isfinite(growth)]
        rows.append(
            (
                *_place(panel.shard),
                _measured(found, "decay_rate"),
                number(found.predicted_decay_rate.item()),
                f"{number(known.min(), 3)} to {number(known.max(), 3)}" if known.size else "–",  # noqa: RUF001
                *(_measured(found.isel(time=k), "beta_power") for k in at),
            )
        )
    return Table(
        "bound",
        "W2 to the metastable target is at most the distance to the zero-temperature flow (the "
        "stability term, which grows with time and falls with beta) plus that flow's own distance, "
        "which decays; means over seeds with 95 % intervals; a rate needs enough tokens and times.",
        (*_PLACE, "decay rate", "predicted", "growth rates of the stability term", *heads),
        tuple(rows),
    )


def _measured(rates: xr.Dataset, name: str) -> str:
    value, low, high = (rates[name + end].item() for end in ("", "_low", "_high"))
    within = "" if np.isnan(low) else f" [{number(low, 3)}, {number(high, 3)}]"
    return number(value, 3) + within


def terminal_table(panels: Iterable[Panel]) -> Table:
    """Tabulate which reading of the terminal state the tokens are nearer to at t_end."""
    rows = []
    for panel in panels:
        ends = panel.curves.isel(time=-1)
        real, modulus = (
            ends[name].values.ravel() for name in ("distance_terminal", "distance_terminal_modulus")
        )
        known = np.isfinite(real) & np.isfinite(modulus)
        real, modulus = real[known], modulus[known]
        middle = [np.median(values) if values.size else np.nan for values in (real, modulus)]
        texts = (number(float(value)) for value in middle)
        rows.append((*_place(panel.shard), *texts, _winner(real, modulus)))
    return Table(
        "terminal",
        "Conjecture 1 read in two ways: median over the cells, at the last time, of the rms "
        "chordal distance to V's eigenspace of largest real part and of largest modulus.",
        (*_PLACE, "to largest real part", "to largest modulus", "nearer"),
        tuple(rows),
    )


def _winner(real: np.ndarray, modulus: np.ndarray) -> str:
    if not real.size:
        return "no cell computed"
    if np.abs(real - modulus).max() < 1e-9:
        return "both readings name the same eigenspace"
    nearer = int((real < modulus).sum())
    return f"largest real part in {nearer} cells, largest modulus in {real.size - nearer}"


def cells_table(panels: Iterable[Panel], run_folder: Path) -> Table:
    """Tabulate the cells that failed, are missing or are stale, at most 200 of them by name."""
    rows = []
    for panel in panels:
        folder = shard_folder(run_folder, panel.shard)
        reasons = failures(folder)
        for (beta, seed), state in cell_states(folder / "trajectories.zarr", panel.shard).items():
            if state != DONE:
                reason = reasons.get((beta, seed), "") if state == FAILED else ""
                at = (number(beta), str(seed), STATE_NAMES[state], reason)
                rows.append((*_place(panel.shard), *at))
    total = sum(len(panel.shard.betas) * len(panel.shard.seeds) for panel in panels)
    caption = f"{len(rows)} of {total} cells failed, are missing or are stale"
    more = f"; the first {_MOST_CELLS} are listed" if len(rows) > _MOST_CELLS else ""
    heads = (*_PLACE, "beta", "seed", "state", "error")
    return Table("cells", f"{caption}{more}.", heads, tuple(rows[:_MOST_CELLS]))
