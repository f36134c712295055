import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import tiny_run
import xarray as xr

ROOT = Path(__file__).parent.parent
RUN = subprocess.run
CELLS = (ROOT / "examples/tutorial.py").read_text().split("# %% ")
SENTENCE = next(cell for cell in CELLS if "sentence = (" in cell)


def run(command, **options):
    """Run a command line of mfsweep in this process, on one worker; others as ever."""
    if command[:3] != [sys.executable, "-m", "mfsweep"]:
        return RUN(command, **options)
    out = StringIO()
    with redirect_stdout(out):
        code = tiny_run.mfsweep(*command[3:])
    assert code == 0
    return subprocess.CompletedProcess(command, code, out.getvalue())


@pytest.fixture(scope="module")
def after(tmp_path_factory):
    """What the cells of the tutorial leave behind, and what they printed."""
    import matplotlib.pyplot as plt
    from small_run import run_here

    names, out = {}, StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
        run_here(patch)
        patch.setattr(subprocess, "run", run)
        patch.chdir(tmp_path_factory.mktemp("tutorial"))
        for cell in CELLS:
            exec(cell if cell is CELLS[0] else f"# {cell}", names)
        names["laws"].load()  # to be read in another folder
        names["folder"] = Path.cwd()
    plt.close("all")
    return names, out.getvalue()


def test_the_tutorial_ends_with_a_sentence_whose_numbers_are_in_the_stores(after):
    names, printed = after
    laws = xr.open_zarr(names["folder"] / "results/tutorial/laws.zarr", consolidated=False)
    law = laws.sel(estimator="turnaround", law="log").squeeze().load()
    assert law.resolved_slope_low < law.resolved_slope < law.resolved_slope_high
    sentence = names["sentence"]
    assert sentence in printed
    assert f"With {law.n_tokens:.0f} tokens" in sentence
    assert f"grows by {law.resolved_slope:.2f} per" in sentence
    assert f"[{law.resolved_slope_low:.2f}, {law.resolved_slope_high:.2f}]" in sentence
    assert f"predicted {law.predicted_slope:.2f} lies inside" in sentence
    assert f"of {law.counts.sum():d} cells {law.counts[4]:d} are under-resolved" in sentence
    assert f"and {law.resolved_betas:d} beta from 8 to 64," in sentence


def test_the_sentence_of_the_tutorial_follows_the_stores(after):
    names = dict(after[0])
    law = {"estimator": "turnaround", "law": "log"}
    names["laws"] = changed = names["laws"].copy(deep=True)
    changed["n_tokens"] = 77.0
    told = {"resolved_slope": 3.25, "resolved_slope_low": 3.125, "resolved_slope_high": 3.5}
    told |= {"predicted_slope": 4.25, "slope": 5.25, "resolved_evidence": 0.375}
    for name, value in told.items():
        changed[name].loc[law] = value
    changed.counts.loc[law] = [0, 11, 12, 0, 13]
    changed.resolved_status.loc[law] = 3
    with redirect_stdout(StringIO()):
        exec(SENTENCE.partition("\n")[2], names)
    for text in (
        *("With 77 tokens", "grows by 3.25 per", "[3.12, 3.50]", "predicted 4.25 lies outside"),
        *("of 36 cells 13 are under-resolved", "slope is 5.25", "12 are censored"),
        *("'few_betas'", "37.5% of the evidence"),
    ):
        assert text in names["sentence"]


def test_the_tutorial_meets_every_status_and_sees_w2_fall_and_rise(after):
    names, _ = after
    counts = names["laws"].counts.sel(law="log").sum("estimator")
    for status in ("observed", "censored", "absent", "under_resolved"):
        assert counts.sel(cell_status=status) > 0
    w2 = names["w2"]
    assert (w2.min("time") < w2.isel(time=[0, -1]).min("time") / 2).all()
    assert (names["folder"] / "w2.png").stat().st_size > 1000
