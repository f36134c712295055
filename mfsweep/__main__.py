"""Run the command line as ``python -m mfsweep``."""

from mfsweep.cli import main

if __name__ == "__main__":  # Dask's worker processes import this module again
    main()
