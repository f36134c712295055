from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits
from tiny_run import write_config

from mfsweep.sweep import execute
from mfsweep.sweep.cell import start
from mfsweep.sweep.config import load_config
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import shards
from mfsweep.sweep.plan import BASE_BYTES, plan
from mfsweep.sweep.store import prepare


def peak():
    """Peak resident bytes of the process that runs this."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")
def test_the_peak_of_a_worker_is_what_plan_predicts_within_a_factor_of_1_3(tmp_path):
    n_times, n_tokens = 1501, 4096
    grid = {"n_tokens": [n_tokens], "beta": [4.0], "seed": [0]}
    file = write_config(tmp_path, grid=grid, time={"t_end": 1.0, "n_times": n_times})
    config = load_config(file)
    (shard,), (cost,) = shards(config), plan(config)
    path = shard_folder(tmp_path, shard) / "trajectories.zarr"
    prepare(path, config, shard, {0: start(config, shard, 0)[1]})
    with execute.connect(execute.Workers(2)) as client:
        assert max(client.run(peak).values()) < BASE_BYTES
        client.submit(execute._simulate_cell, config, next(shard.cells()), path).result()
        client.submit(execute._measure_seed, config, shard, 0, path).result()
        found = max(client.run(peak).values())
    assert cost.bytes_worker / 1.3 < found < 1.3 * cost.bytes_worker
    assert found - BASE_BYTES < 8 * n_times * n_tokens * shard.d, "the whole cell was held"


def test_a_drift_is_timed_on_one_thread_as_a_worker_has(tmp_path, monkeypatch):
    pools = []

    def timed(*_):
        pools.extend(pool["num_threads"] for pool in threadpool_info())

    monkeypatch.setattr("mfsweep.sweep.plan.softmax_drift", timed)
    with threadpool_limits(2):
        plan(load_config(write_config(tmp_path)))
    assert pools
    assert set(pools) == {1}
