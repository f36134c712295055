"""What SLURM says of a job before it is submitted."""

import re
import shutil
import subprocess
import tempfile

from mfsweep._errors import InputError

SUBMIT_SECONDS = 20
"""How long sbatch may take to look at a job."""


def check_job(place: str, script: str, remedy: str) -> None:
    """Let SLURM look at a job script without submitting it.

    Parameters
    ----------
    place
        The option that asks for SLURM, named in the errors.
    script
        Job script with its `#SBATCH` lines.
    remedy
        What to correct.

    Raises
    ------
    InputError
        If there is no sbatch, if it would refuse the job, or if it does not answer.
    """
    if shutil.which("sbatch") is None:
        message = (
            f"{place}: there is no sbatch on the path: run this where SLURM jobs are submitted"
        )
        raise InputError(message)
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script)
        file.flush()
        try:
            run = subprocess.run(
                ["sbatch", "--test-only", file.name],
                capture_output=True,
                text=True,
                timeout=SUBMIT_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            message = f"{place}: sbatch did not answer in {SUBMIT_SECONDS} s: is SLURM up?"
            raise InputError(message) from error
    if run.returncode:
        asked = " ".join(re.findall(r"^#SBATCH (-[pAt] \S+|--\S+)", script, re.MULTILINE))
        message = (
            f"{place}: SLURM refuses a job ({asked}): {' '.join(run.stderr.split())}: correct "
            f"{remedy}; sinfo lists partitions"
        )
        raise InputError(message)
