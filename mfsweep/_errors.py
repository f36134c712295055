"""The exceptions that every layer shares; importing them loads nothing else."""


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
