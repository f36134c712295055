"""Time the W2 curve of one cell, one thread: python tests/benchmarks/distances.py

m = 1, 4096 tokens and 400 times; m = 2, 1000 tokens and 100 times, beta = 16. Beside the second
stands an assignment solver, and network simplex without the matrix of costs, on every tenth time.
"""

import os

for library in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import time

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mfsweep import initial_tokens, project_dominant, simulate, weights_with_gap
from mfsweep.analysis import wasserstein
from mfsweep.analysis.wasserstein import w2_curve


def trajectory(multiplicity: int, n: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of a cell through all its phases, their targets, their masses."""
    weights = weights_with_gap(
        2 * multiplicity, 0.5, family="aligned", seed=0, multiplicity=multiplicity
    )
    x0, mass = initial_tokens(n, 2 * multiplicity, seed=1)
    tokens = simulate(x0, weights, 16.0, times=np.linspace(0.0, 40.0, count)).tokens
    return tokens, project_dominant(x0, weights), mass


def seconds(work) -> tuple[float, object]:
    """Processor seconds of a call, and its result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def assignment(tokens: np.ndarray, target: np.ndarray) -> np.ndarray:
    costs = (cdist(x, target) ** 2 for x in tokens)
    return np.sqrt([cost[linear_sum_assignment(cost)].mean() for cost in costs])


def main() -> None:
    spent, _ = seconds(lambda: w2_curve(*trajectory(1, 64, 2)))
    tokens, target, mass = trajectory(1, 4096, 400)
    spent, _ = seconds(lambda: w2_curve(tokens, target, mass))
    print(f"m = 1, n = 4096, 400 times: {spent:.2f} s")
    tokens, target, mass = trajectory(2, 1000, 100)
    spent, curve = seconds(lambda: w2_curve(tokens, target, mass))
    print(f"m = 2, n = 1000, 100 times: {spent:.1f} s")
    part = slice(None, None, 10)
    simplex, _ = seconds(lambda: w2_curve(tokens[part], target, mass))
    other, same = seconds(lambda: assignment(tokens[part], target))
    apart = abs(same - curve[part]).max()
    print(f"  against assignment: {other / simplex:.1f}, difference {apart:.0e}")
    wasserstein.LARGEST_PLAN = 10
    lazy, same = seconds(lambda: w2_curve(tokens[part], target, mass))
    print(
        f"  against no matrix of costs: {lazy / simplex:.1f}, {abs(same - curve[part]).max():.0e}"
    )


if __name__ == "__main__":
    main()
