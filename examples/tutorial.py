"""From a config to a sentence for a paper, in half a minute.

Run the whole file with Python, or cell by cell in an editor that knows `# %%`. It writes to the
folder it is run in.
"""

# ruff: noqa: T201

# %% Write a config. `mfsweep init` writes one with comments; `mfsweep explain KEY` tells of a key.
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import yaml

import mfsweep

settings = {
    "run": "tutorial",
    "grid": {
        "family": ["aligned"],
        "d": [2],
        "gap": [0.5],
        "n_tokens": [512],
        "beta": {"geom": [8, 128, 5]},
        "seed": 6,
    },
    "families": {"aligned": {"kind": "aligned", "b": [2.0, 0.5]}},
    "time": {"t_end": 20.0, "n_times": 81},
}
Path("tutorial.yaml").write_text(yaml.safe_dump(settings))


# %% Check it: what it costs, and whether it fits on this machine. Bad input is refused in one line.
def run(verb):
    """Do what `mfsweep VERB --config tutorial.yaml` does in a terminal."""
    command = [sys.executable, "-m", "mfsweep", verb, "--config", "tutorial.yaml"]
    print(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


run("plan")

# %% Run it. A second run computes nothing; more betas or seeds in the config, only their cells.
for verb in ("simulate", "measure", "collect"):
    run(verb)

# %% Open the stores as one lazy tree; xarray.open_zarr(path, consolidated=False) opens one of them.
tree = mfsweep.open_results("results/tutorial")
tree = mfsweep.select(tree, family="aligned", d=2, gap=0.5, n_tokens=512)
curves, switches, laws = (tree[name].to_dataset() for name in ("curves", "switch_times", "laws"))
print(curves)

# %% W2 to the metastable target falls, stays low for longer at larger beta, and rises again.
w2 = curves.w2_metastable.median("seed")
print(w2.sel(time=[0, 2, 5, 10, 20]).to_pandas().round(4))
figure, axis = plt.subplots(layout="constrained")
w2.plot.line(x="time", hue="beta", yscale="log", ax=axis)
figure.savefig("w2.png")

# %% When the phases switch: a time for every beta and seed, with the ends that the curve allows as
# switch_time_low and switch_time_high.
turnaround = switches.sel(estimator="turnaround")
print(turnaround.switch_time.to_pandas().round(2))

# %% Beside every time stands its status. Cells by status:
# observed        it happened between two saved times;
# censored        not before the last time, which is a lower bound;
# absent          it cannot happen;
# under_resolved  it happened, but so few tokens were attended to that their number decides when.
print(laws.counts.sel(law="log").to_pandas())

# %% How the times grow: t = a + b log(beta), with the 95 % interval of the slope b. A name with
# resolved_ belongs to the same fit to those beta at which no cell is under-resolved.
shown = ["slope", "slope_low", "slope_high", "predicted_slope"]
shown += ["resolved_slope", "resolved_slope_low", "resolved_slope_high", "resolved_betas"]
print(laws.sel(law="log")[shown].to_dataframe()[shown].T.round(2))

# %% A sentence for a paper, every number of it from the stores.
law = laws.sel(estimator="turnaround", law="log")
low, high, predicted = law.resolved_slope_low, law.resolved_slope_high, law.predicted_slope
cells, under_resolved = law.counts.sum(), law.counts.sel(cell_status="under_resolved")
censored = law.counts.sel(cell_status="censored")
flagged = turnaround.status == turnaround.status.flag_meanings.split().index("under_resolved")
beta = turnaround.beta[~flagged.any("seed")]
fit = law.resolved_status.flag_meanings.split()[law.resolved_status.item()]
sentence = (
    f"With {law.n_tokens:.0f} tokens (d = {law.d:d}, gap {law.gap:g}) and {beta.size} beta from "
    f"{beta.min():g} to {beta.max():g}, the turnaround grows by {law.resolved_slope:.2f} per unit "
    f"of log beta (95 % interval [{low:.2f}, {high:.2f}], {turnaround.seed.size} seeds), and the "
    f"predicted {predicted:.2f} lies {'inside' if low <= predicted <= high else 'outside'}; of "
    f"{cells:d} cells {under_resolved:d} are under-resolved, whose beta are left out (with them "
    f"the slope is {law.slope:.2f}), and {censored:d} are censored; the status of the fit is "
    f"{fit!r}, and {law.resolved_evidence:.1%} of the evidence is for a law in log beta."
)
print(sentence)

# %% All of it on a page: mfsweep report. Figures for a paper: mfsweep plot. What made the stores:
# mfsweep show results/tutorial.
