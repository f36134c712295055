"""What the page shows, read back."""

import numpy as np
import pytest

from mfsweep._types import LAW_STATUSES
from mfsweep.report.words import LAW_WORDS
from mfsweep.sweep.results import open_results

NOTHING = "\N{EN DASH}"


def read(cell):
    """The number that a cell of a table or of a CSV shows."""
    return np.nan if cell in (NOTHING, "") else float(cell.replace("\N{MINUS SIGN}", "-"))


def to_digits(value, digits=4):
    return float(f"{value:.{digits}g}")


def in_csv(cells):
    """The row of a CSV that says what a row of a table does."""
    return [cell.replace("\N{MINUS SIGN}", "-").replace(NOTHING, "") for cell in cells]


def assert_shows_the_laws(table, run_folder):
    """Check every number of the table of laws, heads first, against laws.zarr."""
    laws = open_results(run_folder)["laws"].to_dataset()
    heads, *rows = table
    assert len(rows) == 3 * 4 * 2
    for row in rows:
        cell = dict(zip(heads, row, strict=True))
        law = laws.sel(
            family=cell["family"],
            d=int(cell["d"]),
            gap=float(cell["gap"]),
            n_tokens=float(cell["tokens"]),
            estimator=cell["estimator"],
            law={"log beta": "log", "beta": "linear"}[cell["law in"]],
        )
        for head, name, digits in (
            ("slope", "slope", 4),
            ("predicted slope", "predicted_slope", 4),
            ("AIC", "aic", 4),
            ("evidence", "evidence", 3),
        ):
            expected = to_digits(law[name].item(), digits)
            assert read(cell[head]) == pytest.approx(expected, nan_ok=True), head
        for head, name, between in (
            ("95 % interval", "slope", ", "),
            ("slope without one beta", "slope_without_one", " to "),
        ):
            ends = [law[f"{name}_{end}"].item() for end in ("low", "high")]
            shown = cell[head].strip("[]")
            if np.isfinite(ends[0]):
                assert [read(end) for end in shown.split(between)] == [to_digits(e) for e in ends]
            else:
                assert shown in (NOTHING, "")
        for name in laws.cell_status.values:
            count = law.counts.sel(cell_status=name).item()
            assert int(cell[name.replace("_", "-")]) == count
        assert cell["verdict"].startswith(LAW_WORDS[LAW_STATUSES[int(law.status)]])
