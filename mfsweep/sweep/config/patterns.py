"""A file family whose path is a pattern: it stands for one family a file."""

import glob
import re
from pathlib import Path
from typing import Any

from mfsweep.sweep.config.refusals import refuse

_MOST_FILES = 10_000


def expanded(document: Any, folder: Path) -> Any:
    """Write out every pattern in a config as read: its label becomes {label}-{stem} of each file.

    The files come in the order of their names, numbers in them by value; `grid.family` and each
    override that names the pattern's label then name every one of them.

    Parameters
    ----------
    document
        The config as read; what is no config is left to the models to refuse.
    folder
        Paths are relative to it.
    """
    families = document.get("families") if isinstance(document, dict) else None
    if not isinstance(families, dict):
        return document
    found = {
        label: _files(label, options["path"], folder)
        for label, options in families.items()
        if _is_pattern(options, folder)
    }
    if not found:
        return document
    written: dict[Any, Any] = {}
    for label, options in families.items():
        for name, path in found.get(label, {label: None}).items():
            if name in written or (label in found and name in families):
                allowed = f"stands for {name}, which is another family already"
                refuse(allowed, "rename one of them", "families", label, "path", got=path)
            written[name] = {**options, "path": str(path)} if path else options
    return {
        key: _named(value, found) if key in ("grid", "overrides") else value
        for key, value in {**document, "families": written}.items()
    }


def _is_pattern(options: Any, folder: Path) -> bool:
    if not isinstance(options, dict) or options.get("kind") != "file":
        return False
    path = options.get("path")
    return isinstance(path, str) and glob.has_magic(path) and not Path(folder, path).is_file()


def _files(label: Any, pattern: str, folder: Path) -> dict[str, Path]:
    """Return the files of a pattern by the labels that they get."""
    names = glob.iglob(pattern, root_dir=folder)  # noqa: PTH207 -- takes absolute ones, never **
    paths = [Path(folder, name).absolute() for name in names if name.endswith(".npz")]
    at = ("families", label, "path")
    if not 1 <= len(paths) <= _MOST_FILES:
        allowed = f"must match 1 to {_MOST_FILES:,} .npz files, relative to the config's folder or"
        remedy = "correct the pattern or write the files"
        refuse(f"{allowed} absolute; matches {len(paths):,}", remedy, *at, got=pattern)
    labels = {f"{label}-{path.stem}": path for path in sorted(paths, key=_order)}
    if len(labels) < len(paths):
        refuse("matches two files of one name", "narrow the pattern", *at, got=pattern)
    for name in labels:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,31}", name):
            allowed = f"gives the label {name}: it must be 1 to 32 letters, digits, _ or -"
            refuse(allowed, "shorten the label or rename the file", *at, got=pattern)
    return labels


def _order(path: Path) -> list[tuple[int, str]]:
    """Order names by their numbers: layer2 before layer10."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _named(section: Any, found: dict[Any, dict[str, Path]]) -> Any:
    """Put the labels of a pattern's files where the section names the pattern's own."""
    if isinstance(section, dict) and isinstance(section.get("family"), list | tuple):
        labels = [name for label in section["family"] for name in _labels(label, found)]
        return {**section, "family": labels}
    if isinstance(section, list | tuple):
        return [
            {**one, "family": name} if isinstance(one, dict) and "family" in one else one
            for one in section
            for name in _labels(one.get("family") if isinstance(one, dict) else None, found)
        ]
    return section


def _labels(label: Any, found: dict[Any, dict[str, Path]]) -> list[Any]:
    """Return the labels that one label stands for."""
    return [*found[label]] if isinstance(label, str) and label in found else [label]
