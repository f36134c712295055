"""The report: one HTML page that opens from disk and needs nothing else."""

from pathlib import Path

from mfsweep.plotting import read_panels
from mfsweep.report.moving import read_orbits
from mfsweep.report.page import page_html
from mfsweep.sweep.config import Config

__all__ = ["write_report"]


def write_report(config: Config, run_folder: Path) -> Path:
    """Write the run's report.html.

    Parameters
    ----------
    config
        What the report is about.
    run_folder
        Folder of the run, results/{run}, after collect.

    Returns
    -------
    Path
        The page: tables, figures, plotly.js and data are all inside it.

    Raises
    ------
    StoreError
        If the run has not been collected.
    """
    panels = read_panels(config, run_folder)
    path = run_folder / "report.html"
    partial = run_folder / ".report.html"
    partial.write_text(page_html(config, run_folder, panels, read_orbits(panels, run_folder)))
    partial.replace(path)
    return path
