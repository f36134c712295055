"""The config file: frozen strict models, read from YAML, each mistake refused in one line.

``config/README.md`` holds every key's type, unit, default and meaning; ``config_schema`` is the
same contract as JSON schema.

- ``values``: what one number, name, list or mapping may be.
- ``axes``: the keys ``grid`` and ``overrides``.
- ``sections``: every other section and its keys.
- ``patterns``: file families whose path stands for many files.
- ``whole``: `Config`, its parts, and what the keys ask for together.
- ``reading``: from a file to a `Config`.
- ``refusals``: how a mistake is told in one line.
"""

from mfsweep.sweep.config.axes import Geom
from mfsweep.sweep.config.reading import config_schema, load_config
from mfsweep.sweep.config.refusals import one_line
from mfsweep.sweep.config.sections import Family, File, Time
from mfsweep.sweep.config.values import significant
from mfsweep.sweep.config.whole import Config, Part

__all__ = [
    "Config",
    "Family",
    "File",
    "Geom",
    "Part",
    "Time",
    "config_schema",
    "load_config",
    "one_line",
    "significant",
]
