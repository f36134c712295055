import math

import numpy as np
import pytest
import xarray as xr

from mfsweep import weights_with_gap
from mfsweep._types import ESTIMATORS, STATUSES
from mfsweep.plotting.continuum import comparisons, continuum
from mfsweep.plotting.panels import Panel
from mfsweep.report.needed import continuum_table
from mfsweep.sweep.figures import figure_names
from mfsweep.sweep.grid import Shard

BETAS = (4.0, 8.0, 16.0, math.inf)
WEIGHTS = weights_with_gap(2, 0.5, family="aligned", seed=0)
OBSERVED, CENSORED, ABSENT = (STATUSES.index(s) for s in ("observed", "censored", "absent"))


def panel(n_tokens, crossover, turnaround=(5.0, 6.0, 7.0)):
    """Two seeds of one shard whose crossovers at the finite betas are given; inf if censored."""
    seeds = (0,) if math.isinf(n_tokens) else (0, 1)
    nothing = [math.nan] * 3
    rows = np.array([nothing, turnaround, nothing, crossover])
    rows = np.concatenate([rows, np.full((4, 1), math.nan)], axis=1)
    status = np.where(np.isinf(rows), CENSORED, np.where(np.isnan(rows), ABSENT, OBSERVED))
    value = np.where(np.isinf(rows), 20.0, rows)
    dims, shape = ("estimator", "beta", "seed"), (*rows.shape, len(seeds))
    spread = {"switch_time": 0.0, "switch_time_low": -0.1, "switch_time_high": 0.2}
    switches = xr.Dataset(
        {
            name: (dims, np.broadcast_to((value + by)[..., None], shape))
            for name, by in spread.items()
        }
        | {"status": (dims, np.broadcast_to(status[..., None], shape).astype(np.uint8))},
        coords={"estimator": list(ESTIMATORS), "beta": list(BETAS), "seed": list(seeds)},
    )
    shard = Shard("a", 2, 0.5, n_tokens, BETAS, seeds)
    return Panel(shard, WEIGHTS, xr.Dataset(), switches, xr.Dataset(), xr.Dataset())


PANELS = [
    panel(100.0, (10.001, 13.0, 15.0)),
    panel(200.0, (10.3, 12.01, math.inf)),
    panel(400.0, (10.01, 12.0, 20.0)),
    panel(math.inf, (10.0, 12.0, 30.0)),
]


def test_needed_tokens_are_the_least_from_which_on_all_agree_within_one_per_cent():
    (row,) = comparisons(PANELS)
    assert row.needed("crossover").tolist() == [400.0, 200.0, math.inf]
    assert row.needed("turnaround").tolist() == [100.0] * 3
    np.testing.assert_allclose(row.bars("crossover"), [[0.1] * 3, [0.2] * 3])


def test_nothing_agrees_with_an_event_that_the_continuum_does_not_have():
    limit = panel(math.inf, (10.0, math.inf, math.nan))
    (row,) = comparisons([panel(100.0, (10.0, 12.0, 12.0)), limit])
    assert row.agrees(row.particles[0], "crossover").tolist() == [True, False, False]


def test_the_table_names_them_beside_the_estimate_at_the_start():
    table = continuum_table(PANELS)
    rows = [row for row in table.rows if row[3] == "crossover"]
    assert [row[5] for row in rows] == ["10", "12", "30"]
    assert [row[7] for row in rows] == ["400", "200", "more than all"]
    assert [row[8] for row in rows] == ["222", "314", "444"]  # 25 pi sqrt(2 beta)
    assert [row[9] for row in rows] == ["0.1", "0", "−33"]  # noqa: RUF001


def test_the_figure_has_a_line_for_every_n_and_fills_marks_that_agree():
    figure = continuum(PANELS)
    assert [axis.get_xscale() for axis in figure.axes] == ["log", "linear"] * 2
    crossing = figure.axes[0]
    filled = [line for line in crossing.lines if line.get_marker() == "o"]
    near = {line.get_color(): [] for line in filled}
    for line in filled:
        if line.get_markerfacecolor() == line.get_color():
            near[line.get_color()].append(line.get_xdata().tolist())
    assert [xs for (xs,) in near.values()] == [[4.0], [8.0], [4.0, 8.0], [4.0, 8.0, 16.0]]
    black = [line for line in crossing.lines if line.get_color() == "black"]
    assert black[0].get_ydata().tolist() == [10.0, 12.0, 30.0]


@pytest.mark.parametrize(
    ("n_tokens", "expected"),
    [
        ([8], ("w2_curves", "distances", "switch_times", "bound_terms", "tokens_circle")),
        (
            [8, math.inf],
            ("w2_curves", "distances", "switch_times", "bound_terms", "continuum", "tokens_circle"),
        ),
        ([math.inf], ("w2_curves", "distances", "switch_times", "bound_terms")),
    ],
)
def test_only_a_run_with_particles_and_the_continuum_compares_them(make_config, n_tokens, expected):
    assert figure_names(make_config(grid={"n_tokens": n_tokens})) == expected
