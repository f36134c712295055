"""Random sequences of grow, shrink, kill, resume, prune: every cell asked for is there once."""

import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tiny_run import changed, simulate
from zarr.storage import LocalStore

from mfsweep.sweep.cell import run_cell
from mfsweep.sweep.config import Config
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import DONE
from mfsweep.sweep.store import axes, cell_states, read_cell
from mfsweep.sweep.unasked import prune, unasked

STEPS = [
    *((LocalStore, name) for name in ("set", "delete")),
    *((Path, name) for name in ("rename", "replace", "unlink")),
]
BETAS, SEEDS = [1.0, 4.0, 16.0], [0, 1, 2]


class Killed(BaseException):
    """What a kill leaves on disk: whatever was written so far, and no more."""


@contextmanager
def killed_after(writes):
    """Stop at one of the writes, renames and removals that change the folder."""
    left = [writes]

    def counted(original):
        def step(*arguments, **options):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return original(*arguments, **options)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for owner, names in (
            (LocalStore, ("set", "delete")),
            (Path, ("rename", "replace", "unlink")),
        ):
            for name in names:
                patch.setattr(owner, name, counted(getattr(owner, name)))
        yield


@cache
def fresh(beta, seed):
    shard = shards(config([beta], [seed]))[0]
    return run_cell(config([beta], [seed]), next(iter(shard.cells())))[0]


def config(betas, seeds):
    return Config.model_validate(changed(grid={"beta": betas, "seed": seeds}))


def some(values):
    return st.sets(st.sampled_from(values), min_size=1).map(list)


class Sweep(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "run"
        self.betas, self.seeds, self.finished = [BETAS[0]], [SEEDS[0]], False

    def teardown(self):
        self.temporary.cleanup()

    @property
    def config(self):
        return config(self.betas, self.seeds)

    @property
    def store(self):
        return self.folder / "shards" / shards(self.config)[0].id / "trajectories.zarr"

    @rule(betas=some(BETAS), seeds=some(SEEDS), writes=st.none() | st.integers(0, 80))
    def grow_or_shrink_and_run(self, betas, seeds, writes):
        """Ask for another grid and compute it, or be killed at one of the writes."""
        self.betas, self.seeds = betas, seeds
        before = self.done()
        with killed_after(-1 if writes is None else writes):
            try:
                (outcome,) = simulate(self.config, self.folder)
            except Killed:
                self.finished = False
                return
        assert outcome.computed == len(betas) * len(seeds) - before
        self.finished = True

    @rule(writes=st.integers(0, 40))
    def prune(self, writes):
        with killed_after(writes):
            try:
                prune(unasked(self.config, self.folder), self.config)
            except Killed:
                self.finished = False
                return
        if self.finished:
            betas, seeds = axes(self.store)
            assert (sorted(betas), sorted(seeds)) == (sorted(self.betas), sorted(self.seeds))

    def done(self):
        return list(cell_states(self.store, shards(self.config)[0]).values()).count(DONE)

    @invariant()
    def cells_are_there_once_with_the_values_of_a_fresh_run(self):
        betas, seeds = axes(self.store)
        assert len(set(betas)) == len(betas)
        assert len(set(seeds)) == len(seeds)
        if self.finished:
            assert self.done() == len(self.betas) * len(self.seeds)
            assert (self.store.with_name("simulate.done")).exists()
        states = cell_states(self.store, shards(self.config)[0])
        for (beta, seed), state in states.items():
            if state == DONE:
                found, wanted = read_cell(self.store, beta, seed), fresh(beta, seed)
                assert np.array_equal(found["tokens"], wanted.tokens)
                assert np.array_equal(found["ess_median"], wanted.ess_median)


Sweep.TestCase.settings = settings(
    max_examples=20, stateful_step_count=8, deadline=None, phases=[Phase.generate]
)
test_grow_shrink_kill_resume_prune = Sweep.TestCase
