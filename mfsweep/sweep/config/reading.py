"""Reading a config file, and the JSON schema that it obeys."""

import os
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError

from mfsweep._errors import InputError
from mfsweep.sweep.config.refusals import dotted, one_line, told
from mfsweep.sweep.config.whole import Config

_MAX_BYTES = 1_000_000
_MAX_SCALAR = 1_000
_UNREADABLE = (  # what PyYAML raises on text it cannot read
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read, check and freeze a config file.

    Parameters
    ----------
    path
        A YAML file in UTF-8 of at most 1 MB, without aliases or repeated keys.

    Returns
    -------
    Config
        The sweep, with every default filled in and each file family's path made absolute.

    Raises
    ------
    InputError
        One line of at most 300 characters that names the key, the value received, what is
        allowed and the remedy.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "config.yaml")
    ...     _ = path.write_text("run: demo", encoding="utf-8")
    ...     load_config(path)
    Traceback (most recent call last):
    mfsweep._errors.InputError: grid: required key is missing; add it
    """
    path = Path(path)
    document = _read(path)
    try:
        return Config.model_validate(document, context={"folder": path.parent})
    except ValidationError as error:
        raise InputError(told(error)) from None


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of a config file.

    Examples
    --------
    >>> config_schema()["required"]
    ['run', 'grid', 'families', 'time']
    """
    return Config.model_json_schema()


def _read(path: Path) -> object:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) <= _MAX_BYTES:
            return _parse(data.decode("utf-8"))
        why = f"has more than {_MAX_BYTES:,} bytes; shorten it"
    except InputError:
        raise
    except OSError as error:
        why = f"cannot be read ({error.strerror}); give the path of a config file"
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not UTF-8; save the file as UTF-8"
    except _UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        what = f"line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark else error
        why = f"is not the YAML of a config ({what}); correct it"
    raise InputError(one_line(f"{path}: {why}"))


def _parse(text: str) -> object:
    loader = yaml.SafeLoader(text)
    node = loader.get_single_node()
    if node is None:
        return None
    _check_node(node, (), set())
    return loader.construct_document(node)


def _check_node(node: yaml.Node, path: tuple[object, ...], seen: set[int]) -> None:
    """Refuse what YAML would merge or expand in silence."""
    if id(node) in seen:
        _refuse_node(node, path, "aliases (*name) are not allowed; write the value out")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode) and len(node.value) > _MAX_SCALAR:
        _refuse_node(node, path, f"a value may have {_MAX_SCALAR:,} characters at most; shorten it")
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            _check_node(item, (*path, i), seen)
    if isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            _check_node(key, path, seen)
            if key.value in keys:
                _refuse_node(key, (*path, key.value), "the key is given twice; remove one of them")
            keys.add(key.value)
            _check_node(value, (*path, key.value), seen)


def _refuse_node(node: yaml.Node, path: tuple[object, ...], why: str) -> NoReturn:
    raise InputError(one_line(f"{dotted(path)} (line {node.start_mark.line + 1}): {why}"))
