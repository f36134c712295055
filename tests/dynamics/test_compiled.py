import json
import subprocess
import sys

import pytest

CODE = """
import json, sys, importlib, pkgutil
import numpy as np
import mfsweep.dynamics
from numba.core.dispatcher import Dispatcher
from mfsweep import initial_tokens, simulate, weights_with_gap
from mfsweep.dynamics.continuum import compile_continuum, simulate_continuum
from mfsweep.dynamics.density import VonMises
from mfsweep.dynamics.simulate import compile_kernels

d, continuum = int(sys.argv[1]), len(sys.argv) > 2
compile_continuum() if continuum else compile_kernels(d)
modules = [
    importlib.import_module(f"mfsweep.dynamics.{module.name}")
    for module in pkgutil.iter_modules(mfsweep.dynamics.__path__)
]
compiled = {
    f"{thing.py_func.__module__}.{thing.py_func.__name__}": thing
    for module in modules
    for thing in vars(module).values()
    if isinstance(thing, Dispatcher)
}
before = {name: len(thing.signatures) for name, thing in compiled.items()}
weights = weights_with_gap(d, 0.5, family="aligned", seed=0)
if continuum:
    for law in VonMises(), VonMises(1.0, 1.0):
        for beta in 64.0, np.inf:
            simulate_continuum(law, weights, beta, times=np.array([0.0, 10.0]))
else:
    x, _ = initial_tokens(300, d, seed=0)
    simulate(x, weights, 32.0, times=np.array([0.0, 40.0]))
print(json.dumps({
    "misses": sum(sum(thing.stats.cache_misses.values()) for thing in compiled.values()),
    "loaded later": [n for n, thing in compiled.items() if len(thing.signatures) > before[n]],
}))
"""


def run(*arguments):
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


@pytest.mark.parametrize("arguments", [(2,), (3,), (5,), (2, "continuum")])
def test_a_second_process_compiles_nothing_and_workers_find_all_that_runs_need(arguments):
    assert run(*arguments)["loaded later"] == []
    assert run(*arguments)["misses"] == 0
