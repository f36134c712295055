"""The exceptions that every layer shares; importing them loads nothing else."""

import errno
import os

_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EROFS: "make the file system writable",
    errno.EACCES: "give yourself the right to write there",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close files of other programs",
    errno.ENOENT: "bring back the folder that was moved or deleted, or start anew",
}


class MfsweepError(Exception):
    """Anything that mfsweep refuses or fails at, told in one line."""


class InputError(MfsweepError, ValueError):
    """An input out of range: the line names it, its value, what is allowed and the remedy."""


class IntegrationError(MfsweepError, RuntimeError):
    """An integration that cannot reach its tolerance."""


class TransportError(MfsweepError, RuntimeError):
    """An optimal-transport solve that stopped before it converged."""


class StoreError(MfsweepError, RuntimeError):
    """A store that cannot be read or written as its protocol demands."""


def refused(where: str, error: OSError) -> StoreError:
    """Say what the file system refused, and what to do.

    >>> print(refused("a-d2", OSError(errno.ENOSPC, "")))
    stopped at a-d2: No space left on device; free some space and run again: finished cells are kept
    """
    code = errno.ENOENT if isinstance(error, FileNotFoundError) else error.errno
    reason = os.strerror(code) if code else str(error)
    file = f" ({error.filename})" if error.filename else ""
    remedy = _REMEDIES.get(code or 0, "mend it")
    return StoreError(
        f"stopped at {where}: {reason}{file}; {remedy} and run again: finished cells are kept"
    )
