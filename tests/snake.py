"""Snakemake in a folder of its own."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def snakemake(folder, *arguments, check=True, env=()):
    """Run Snakemake in a folder that holds config.yaml, with no environment activated."""
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--snakefile", ROOT / "Snakefile"]
    run = subprocess.run(
        [*command, "--configfile", folder / "config.yaml", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT), **dict(env)},
        check=False,
    )
    if check:
        assert run.returncode == 0, run.stderr
    return run


def planned(folder):
    """Rules that a dry run would run."""
    out = snakemake(folder, "--dry-run").stdout
    return {rule for rule, _ in re.findall(r"^(\w+) +(\d+)$", out, re.MULTILINE)} - {"total"}
