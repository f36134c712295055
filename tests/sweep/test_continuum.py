import math

import numpy as np
import pytest
import yaml
from small_run import _connect

from mfsweep import open_results, select, simulate, switch_times, weights_with_gap
from mfsweep._errors import InputError
from mfsweep._types import ESTIMATORS, LAW_STATUSES, STATUSES
from mfsweep.analysis.targets import project_dominant, separation
from mfsweep.analysis.wasserstein import w2_curve
from mfsweep.dynamics.continuum import certified_continuum, simulate_continuum
from mfsweep.dynamics.density import VonMises
from mfsweep.plotting import draw_figures, read_panels
from mfsweep.report.moving import read_orbits
from mfsweep.report.page import page_html
from mfsweep.sweep import execute
from mfsweep.sweep.cell import measure_cell, start, weights_of
from mfsweep.sweep.collect import collect
from mfsweep.sweep.config import Config, load_config
from mfsweep.sweep.continuum import initial_density, measure_continuum, run_continuum
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import Cell, Shard, shards, times
from mfsweep.sweep.layout import COARSE, CURVES, DONE
from mfsweep.sweep.plan import plan
from mfsweep.sweep.status import shard_status
from mfsweep.sweep.store import cell_states, drop_cells
from mfsweep.sweep.verify import damage

SETTINGS = {
    "run": "both",
    "grid": {
        "family": ["aligned"],
        "d": [2],
        "gap": [0.5],
        "n_tokens": [16, math.inf],
        "beta": [4.0, 8.0, 16.0, 32.0, math.inf],
        "seed": [3, 5],
    },
    "families": {"aligned": {"kind": "aligned"}},
    "initial": {"distribution": "vmf", "kappa": 1.0, "tilt": 0.5},
    "time": {"t_end": 20.0, "n_times": 41},
    "solver": {"resolution": 1.0},
    "figures": {"formats": ["png"], "dpi": 50},
}


def changed(**sections):
    document = {
        key: dict(value) if isinstance(value, dict) else value for key, value in SETTINGS.items()
    }
    for key, value in sections.items():
        document[key] = document.get(key, {}) | value if isinstance(value, dict) else value
    return Config.model_validate(document)


def run_all(config, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "connect", _connect)
        patch.setattr(execute, "as_completed", list)
        for shard in shards(config):
            for task in (execute.simulate_shard, execute.measure_shard):
                outcome = task(config, shard, folder, execute.Workers(1), lambda *_: None)
                assert not outcome.failures, outcome.failures
    collect(config, folder)
    return open_results(folder)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A run with particles and the continuum: its config, folder, and results."""
    config, folder = changed(), tmp_path_factory.mktemp("both")
    return config, folder, run_all(config, folder)


def continuum_of(config):
    return next(shard for shard in shards(config) if shard.continuum)


def test_the_continuum_is_one_seed_beside_the_particles(both):
    config, _, tree = both
    assert [(s.n_tokens, s.seeds) for s in shards(config)] == [(16.0, (3, 5)), (math.inf, (3,))]
    found = tree["switch_times"].to_dataset().squeeze()
    assert found.n_tokens.values.tolist() == [16.0, math.inf]
    assert (found.status.sel(n_tokens=math.inf, seed=3) != STATUSES.index("missing")).all()
    assert (found.status.sel(n_tokens=math.inf, seed=5) == STATUSES.index("missing")).all()
    assert (found.status.sel(n_tokens=16.0) != STATUSES.index("missing")).all()
    curves = tree["curves"].to_dataset().squeeze().sel(seed=3)
    for name in set(CURVES) - {"log_energy"}:
        assert np.isfinite(curves[name].sel(n_tokens=math.inf)).all() != name.startswith("ess")
    assert np.isposinf(curves.ess_median.sel(n_tokens=math.inf)).all()


def test_the_store_holds_a_density_whose_integral_is_one(both):
    shard = next(node for node in both[2]["shards"].children.values() if "density" in node)
    assert shard.n_tokens == math.inf
    assert shard.density.dims == ("beta", "seed", "time", "theta")
    np.testing.assert_allclose(shard.density.mean("theta") * 2 * np.pi, 1.0, atol=1e-12)
    law = initial_density(both[0], continuum_of(both[0]))
    first = shard.density.isel(beta=0, seed=0, time=0)
    np.testing.assert_allclose(first, np.exp(law.log(shard.theta.values)), atol=1e-3)
    only = select(both[2], n_tokens=math.inf)
    assert ["density" in node for node in only["shards"].children.values()] == [True]


def test_curves_are_those_of_the_runs_masses_at_both_resolutions(both):
    config, _, tree = both
    shard = continuum_of(config)
    weights = weights_of(config, shard)
    pair = certified_continuum(
        initial_density(config, shard), weights, 16.0, times=times(config.time), resolution=1.0
    )
    stored = tree[f"shards/{shard.id}"].to_dataset().sel(beta=16.0, seed=3)
    collected = tree["curves"].to_dataset().squeeze().sel(n_tokens=math.inf, beta=16.0, seed=3)
    fine, coarse = (measure_continuum(run, weights) for run in (pair.fine, pair.coarse))
    for name in CURVES:
        np.testing.assert_array_equal(stored[name], fine[name])
        np.testing.assert_array_equal(collected[name], fine[name])
    for name in COARSE:
        np.testing.assert_array_equal(stored[name], coarse[name.removesuffix("_coarse")])


def test_curves_are_those_of_many_particles():
    weights, saved = weights_with_gap(2, 0.4, family="generic", seed=3), np.array([0.0, 2.0, 6.0])
    theta = 2 * np.pi * (np.arange(800) + 0.5) / 800
    law, x0 = VonMises(0.7, 1.0), np.stack([np.cos(theta), np.sin(theta)], axis=1)
    mass = np.exp(law.log(theta)) / np.exp(law.log(theta)).sum()
    warm, cold = (
        simulate(x0, weights, beta, times=saved, mass=mass).tokens for beta in (8.0, math.inf)
    )
    expected = measure_cell(warm, mass, weights, x0, cold, 8.0)
    found = measure_continuum(simulate_continuum(law, weights, 8.0, times=saved), weights)
    expected["w2_zero_temperature"] = w2_curve(cold, project_dominant(x0, weights), mass)
    for name in ("w2_metastable", "w2_coupling", "w2_stability", "w2_zero_temperature"):
        assert expected[name][1:].min() > 0.01
        np.testing.assert_allclose(found[name], expected[name], atol=5e-4)
    for name in ("distance_dominant", "distance_terminal", "distance_terminal_modulus"):
        np.testing.assert_allclose(found[name], expected[name], atol=5e-4)


def test_switch_times_are_certified_by_the_coarser_run(both):
    config, _, tree = both
    shard = continuum_of(config)
    stored = tree[f"shards/{shard.id}"].to_dataset().isel(seed=0)
    found = tree["switch_times"].to_dataset().squeeze().sel(n_tokens=math.inf, seed=3)
    grid, apart = times(config.time), separation(weights_of(config, shard))
    differences = 0
    for beta in shard.betas:
        series = {name: stored[name].sel(beta=beta).values for name in CURVES}
        fine = switch_times(grid, series, separation=apart)
        series |= {
            name.removesuffix("_coarse"): stored[name].sel(beta=beta).values for name in COARSE
        }
        coarse = switch_times(grid, series, separation=apart)
        for name in ESTIMATORS:
            event = found.sel(estimator=name, beta=beta)
            if fine[name].status == coarse[name].status == "observed":
                differences += fine[name].value != coarse[name].value
                assert event.switch_time == fine[name].value
                assert event.switch_time_low <= min(fine[name].low, coarse[name].value)
                assert event.switch_time_high >= max(fine[name].high, coarse[name].value)
    assert differences >= 8
    crossed = found.status.sel(estimator="crossover", beta=[4.0, 8.0, 16.0, 32.0])
    assert (crossed == STATUSES.index("observed")).all()
    assert found.status.sel(estimator="crossover", beta=math.inf) != STATUSES.index("observed")


def test_a_law_of_the_continuum_has_a_slope_without_an_interval(both):
    laws = both[2]["laws"].to_dataset().squeeze().sel(n_tokens=math.inf)
    law = laws.sel(estimator="turnaround", law="log")
    assert LAW_STATUSES[int(law.status)] == "fitted"
    assert law.slope == pytest.approx(2.0, abs=0.3)
    assert np.isnan(law.slope_low)


def test_a_uniform_start_of_aligned_weights_never_turns_around(tmp_path):
    document = {**SETTINGS, "initial": {"distribution": "uniform"}}
    document["grid"] = SETTINGS["grid"] | {"n_tokens": [math.inf], "beta": [16.0]}
    document["time"] = {"t_end": 60.0, "n_times": 61}
    found = run_all(Config.model_validate(document), tmp_path)["switch_times"].to_dataset()
    allowed = [STATUSES.index("absent"), STATUSES.index("censored")]
    for name in ("turnaround", "crossover"):
        assert int(found.status.sel(estimator=name).item()) in allowed


def test_every_reader_copes_with_the_continuum(both):
    config, folder, _ = both
    assert list(damage(config, folder)) == []
    assert [(row.done, row.measured) for row in shard_status(config, folder)] == [
        (10, True),
        (5, True),
    ]
    panels = read_panels(config, folder)
    assert [name for name, _ in draw_figures(config, folder)][:3] == [
        "w2_curves",
        "distances",
        "switch_times",
    ]
    page = page_html(config, folder, panels, read_orbits(panels, folder))
    assert "aligned, d = 2, gap = 0.5, the continuum" in page


def test_a_damaged_density_is_named_and_unasked_betas_are_dropped(tmp_path):
    config = changed(
        grid={"n_tokens": [math.inf], "beta": [4.0, 8.0]}, time={"t_end": 1.0, "n_times": 3}
    )
    run_all(config, tmp_path)
    (shard,) = shards(config)
    path = shard_folder(tmp_path, shard) / "trajectories.zarr"
    one = Shard(*(getattr(shard, key) for key in ("family", "d", "gap", "n_tokens")), (8.0,), (3,))
    drop_cells(path, config, one)
    assert cell_states(path, shard) == {(4.0, 3): 0, (8.0, 3): DONE}
    chunk = path / "density/c/0/0/0/0"
    chunk.write_bytes(chunk.read_bytes()[:-3] + b"abc")
    narrowed = changed(
        grid={"n_tokens": [math.inf], "beta": [8.0]}, time={"t_end": 1.0, "n_times": 3}
    )
    (found,) = [one for one in damage(narrowed, tmp_path) if one.path == path]
    assert (found.variable, found.beta, found.seed) == ("density", 8.0, 3)


def test_plan_counts_the_continuum(both):
    particles, continuum = plan(both[0])
    assert (particles.cells, continuum.cells) == (10, 5)
    assert continuum.bytes_stored >= 5 * 41 * 720 * 8
    assert 0 < continuum.seconds < 600


@pytest.mark.parametrize(
    "initial",
    [
        {"distribution": "uniform"},
        {"distribution": "vmf", "kappa": 3.0, "tilt": 0.7},
        {
            "distribution": "mixture",
            "components": [{"kappa": 0.0, "weight": 2.0}, {"kappa": 9.0, "tilt": 2.0}],
        },
    ],
)
def test_the_density_is_the_one_that_tokens_are_drawn_from(make_config, initial):
    config = make_config(initial=initial, grid={"n_tokens": [40_000, math.inf]})
    particles, continuum = shards(config)[:2]
    x = start(config, particles, 0)[0] @ np.array([1, 1j])
    theta = 2 * np.pi * np.arange(4000) / 4000
    rho = np.exp(initial_density(config, continuum).log(theta)) * 2 * np.pi / 4000
    for power in (1, 2, 3):
        assert abs((x**power).mean() - rho @ np.exp(1j * power * theta)) < 0.02


def test_run_continuum_counts_what_it_did():
    config = changed(time={"t_end": 1.0, "n_times": 3})
    found = run_continuum(config, Cell("aligned", 2, 0.5, math.inf, 8.0, 3))
    assert set(found) == {"density", "stats", *CURVES, *COARSE}
    assert (found["stats"][[0, 2, 3, 5]] > 0).all()


def refusal(tmp_path, **sections):
    """The line that refuses a config file."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SETTINGS | sections))
    with pytest.raises(InputError) as caught:
        load_config(tmp_path / "config.yaml")
    assert len(str(caught.value)) <= 300
    return str(caught.value)


def test_the_continuum_is_refused_off_the_circle(tmp_path):
    line = refusal(tmp_path, grid=SETTINGS["grid"] | {"d": [2, 3]})
    assert line == (
        "grid.n_tokens = .inf: the continuum needs d = 2, aligned has 3; keep d = 2 only, or ask "
        "for it by an override with d: 2"
    )


def test_the_continuum_is_refused_without_a_density(tmp_path):
    np.savez(tmp_path / "x.npz", tokens=np.eye(2))
    line = refusal(tmp_path, initial={"distribution": "file", "path": "x.npz"})
    assert line.startswith("grid.n_tokens = .inf: the continuum needs a density, a file of tokens")
    assert line.endswith("remove it, or set initial.distribution to uniform, vmf or mixture")


def test_an_override_asks_for_the_continuum_at_d_2_alone():
    overrides = [{"d": 2, "n_tokens": [16, math.inf]}]
    config = changed(grid={"d": [2, 3], "n_tokens": [16]}, overrides=overrides)
    found = [(shard.d, shard.n_tokens) for shard in shards(config)]
    assert found == [(2, 16.0), (2, math.inf), (3, 16.0)]


@pytest.mark.parametrize(
    ("V", "B"),
    [
        (np.diag([1.0, 0.7, 0.1]), np.eye(3)),
        (np.eye(2), np.eye(2)),
        (np.array([[1.0, -0.5], [0.5, 1.0]]), np.eye(2)),
    ],
)
def test_the_continuum_is_refused_for_matrices_without_a_target_on_the_circle(tmp_path, V, B):
    np.savez(tmp_path / "G.npz", V=V, B=B)
    families = {"aligned": {"kind": "file", "path": str(tmp_path / "G.npz")}}
    document = {**SETTINGS, "families": families, "initial": {}}
    with pytest.raises(
        InputError, match=r"^n_tokens = \.inf: .*families\.aligned\.path"
    ) as refusal:
        shards(Config.model_validate(document))
    assert len(str(refusal.value)) <= 300
