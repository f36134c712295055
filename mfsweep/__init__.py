"""Distributed parameter sweeps of mean-field self-attention on the sphere at low temperature."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Weights": "dynamics.weights",
    "weights_with_gap": "dynamics.weights",
    "initial_tokens": "dynamics.initial",
    "softmax_drift": "dynamics.drift",
    "zero_temperature_drift": "dynamics.drift",
    "Trajectory": "dynamics.simulate",
    "simulate": "dynamics.simulate",
    "project_dominant": "analysis.targets",
    "w2": "analysis.wasserstein",
    "SwitchTime": "analysis.switching",
    "switch_times": "analysis.switching",
    "LawFit": "analysis.laws",
    "fit_law": "analysis.laws",
    "open_results": "sweep.results",
    "select": "sweep.results",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it, on first use."""
    if name not in _HOME:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
