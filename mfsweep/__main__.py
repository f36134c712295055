"""Run the command line as ``python -m mfsweep``."""

from mfsweep.cli import main

main()
