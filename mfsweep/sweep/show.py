"""What made the stores of a run."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from mfsweep._errors import InputError
from mfsweep.sweep.store import attributes

_KEYS = (
    "run",
    "config_digest",
    "numerics_versions",
    "mfsweep_version",
    "git_commit",
    "git_dirty",
    "library_versions",
    "config",
)


def show(run_folder: Path) -> str:
    """Describe what made each store of a run, and print the config itself.

    Parameters
    ----------
    run_folder
        Folder of the run, results/{run}.

    Returns
    -------
    str
        One paragraph for all stores made by the same software from the same config; then each
        config, as a file that can be run again.

    Raises
    ------
    InputError
        If the folder holds no store.
    """
    groups: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for path in sorted([*run_folder.glob("*.zarr"), *run_folder.glob("shards/*/*.zarr")]):
        if not path.name.startswith("."):
            attrs = attributes(path)
            made = tuple(json.dumps(attrs.get(key)) for key in _KEYS)
            groups[made].append(str(path.relative_to(run_folder)))
    if not groups:
        message = f"{run_folder} holds no stores: give a run's folder, such as results/demo"
        raise InputError(message)
    blocks = [
        _block(dict(zip(_KEYS, map(json.loads, made), strict=True)), stores)
        for made, stores in groups.items()
    ]
    configs = dict.fromkeys(made[-1] for made in groups)
    return "\n\n".join([*blocks, *(_config(json.loads(text)) for text in configs)])


def _block(made: dict[str, Any], stores: list[str]) -> str:
    dirty = ", with uncommitted changes" if made["git_dirty"] else ""
    versions = json.loads(made["library_versions"])
    rows = {
        "run": made["run"],
        "config digest": made["config_digest"],
        "numerics": ", ".join(map(str, made["numerics_versions"] or ())),
        "package": f"mfsweep {made['mfsweep_version']}",
        "git commit": f"{made['git_commit']}{dirty}",
        "libraries": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "stores": "\n".ljust(17).join(stores),
    }
    return "\n".join(f"{name:15} {value}" for name, value in rows.items())


def _config(text: str) -> str:
    document = yaml.safe_dump(json.loads(text), sort_keys=False, default_flow_style=None)
    return f"# config\n{document}".rstrip()
