import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mfsweep

PACKAGE = Path(mfsweep.__file__).parent
LAYERS = [
    {"_errors", "_types", "progress"},
    {"dynamics.sphere", "dynamics.weights", "dynamics.vectorised", "dynamics.tiles"},
    {
        "dynamics.initial",
        "dynamics.given",
        "dynamics.encoder",
        "dynamics.kernels",
        "dynamics.patches",
        "dynamics.coarsen",
        "dynamics.circle",
        "dynamics.density",
        "dynamics.cells",
    },
    {"dynamics.condense", "dynamics.rest", "dynamics.mesh", "dynamics.meanfield"},
    {"dynamics.drift", "dynamics.integrators"},
    {"dynamics.simulate", "dynamics.advance"},
    {"dynamics.continuum", "dynamics.orbits"},
    {"analysis.targets", "analysis.wasserstein", "analysis.switching", "analysis.laws"},
    {"analysis.evidence", "analysis.bound", "analysis.certification", "analysis.prediction"},
    {"sweep.config"},
    {"sweep.grid"},
    {
        "sweep.blocks",
        "sweep.streams",
        "sweep.layout",
        "sweep.folder",
        "sweep.figures",
        "sweep.lock",
        "sweep.sbatch",
    },
    {"sweep.cell", "sweep.store", "sweep.fitted", "sweep.coordinates", "sweep.failures"},
    {"sweep.estimates", "sweep.continuum", "sweep.slurm"},
    {"sweep.plan", "sweep.workers"},
    {
        "sweep.execute",
        "sweep.collect",
        "sweep.results",
        "sweep.unasked",
        "sweep.verify",
        "sweep.show",
    },
    {"sweep.status"},
    {"plotting"},
    {"report"},
    {"where", "heads"},
    {"cli"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
MAY_USE = {
    "xarray": {"sweep.results", "plotting", "report"},
    "zarr": {"sweep.store"},
    "distributed": {"sweep.execute", "sweep.workers", "sweep.slurm"},
    "dask": {"sweep.workers"},
    "dask_jobqueue": {"sweep.slurm"},
    "matplotlib": {"plotting"},
    "plotly": {"report"},
    "snakemake": set(),
    "ot": {"analysis.wasserstein"},
    "safetensors": {"dynamics.encoder"},
}


def modules():
    """Yield (dotted name inside the package, names it imports when it runs)."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        name = name.removesuffix(".__init__")
        if name in ("__init__", "__main__", "dynamics", "analysis", "sweep"):
            continue
        tree = ast.parse(path.read_text())
        hints = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        imported = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and node not in hints:
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node not in hints:
                imported |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        yield name, imported


def room(name):
    """The listed module that a module is, or is a part of; None if it is neither."""
    while name and name not in RANK:
        name = name.rpartition(".")[0]
    return name or None


MODULES = list(modules())


@pytest.mark.parametrize(("name", "imported"), MODULES)
def test_imports_point_downward(name, imported):
    for module in imported:
        there = room(module.removeprefix("mfsweep.")) if module.startswith("mfsweep.") else None
        if there is not None and there != room(name):
            assert RANK[there] < RANK[room(name)], f"{name} imports {module}"


@pytest.mark.parametrize(("name", "imported"), MODULES)
def test_heavy_libraries_stay_in_their_rooms(name, imported):
    for library, rooms in MAY_USE.items():
        if any(module.split(".")[0] == library for module in imported):
            assert any(name == room or name.startswith(f"{room}.") for room in rooms)


def loaded_by(statement):
    """Top-level modules that a fresh interpreter holds after a statement."""
    code = (
        f"{statement}; import sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_loads_the_standard_library_only():
    loaded = loaded_by("import mfsweep; dir(mfsweep)")
    assert not loaded & {"numpy", "scipy", "xarray", "zarr", "dask", "pydantic", "typer"}


def test_the_command_line_starts_without_the_heavy_libraries():
    loaded = loaded_by("import mfsweep.cli")
    assert not loaded & {
        "scipy",
        "numba",
        "xarray",
        "zarr",
        "dask",
        "ot",
        "matplotlib",
        "pydantic",
        "numpy",
    }


def test_the_snakefile_needs_only_light_modules():
    common = PACKAGE.parent / "workflow/rules/common.smk"
    above = common.read_text().partition("def ")[0]  # no rule, which ast could not read
    imports = [node for node in ast.parse(above).body if isinstance(node, ast.ImportFrom)]
    ours = [ast.unparse(node) for node in imports if node.module.startswith("mfsweep")]
    assert "from mfsweep.sweep.lock import WORKFLOW, Lock, held" in ours
    loaded = loaded_by("; ".join(ours))
    assert not loaded & {"numpy", "scipy", "numba", "xarray", "zarr", "dask", "ot", "matplotlib"}


def test_every_public_name_can_be_imported():
    assert all(getattr(mfsweep, name) is not None for name in mfsweep.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        mfsweep.nonsense  # noqa: B018
