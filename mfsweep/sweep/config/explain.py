"""What a key of the config file means, as config/README.md says it."""

import re
from difflib import get_close_matches
from pathlib import Path

from mfsweep._errors import InputError

STARTER = Path(__file__).with_name("starter.yaml")
"""A config file to start from."""
_PACKAGE = Path(__file__).parents[2]
_PAGES = (_PACKAGE / "config.md", _PACKAGE.parent / "config/README.md")
"""Where an installation and a clone keep the page."""


def entries() -> dict[str, dict[str, str]]:
    """Return what the page says of each key: by dotted key the cells of its row by column."""
    page = next(path for path in _PAGES if path.is_file()).read_text("utf-8")
    found: dict[str, dict[str, str]] = {}
    heads: list[str] = []
    for line in page.splitlines():
        key, *texts = [cell.strip(" `") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] or [""]
        if key == "key":
            heads = texts
        elif not key:  # the end of a table
            heads = []
        elif heads and key.strip("-"):
            plain = [text.replace("\\|", "|").replace("`", "") for text in texts]
            found[key] = dict(zip(heads, plain, strict=True))
    return found


def explain(key: str) -> str:
    """Return the entry of a key, or the list of a section's keys.

    Parameters
    ----------
    key
        Dotted, such as time.t_end; a family by any label, a list's part by any number; the name of
        a section, such as time.

    Raises
    ------
    InputError
        If there is no such key.

    Examples
    --------
    >>> print(explain("time.t_end"))  # doctest: +ELLIPSIS
    time.t_end
      type     number
      default  required
      allowed  > 0, finite
      meaning  last time; must reach the switch of the slowest beta
      example  60.0
    """
    known = entries()
    for name, texts in known.items():
        if re.fullmatch(_pattern(name), key):
            width = max(map(len, texts))
            lines = (f"  {head:{width}}  {text}" for head, text in texts.items())
            return "\n".join([name, *lines])
    section = [name for name in known if re.split(r"[.\[]", name)[0] == key]
    if section:
        return "\n".join(section)
    near = get_close_matches(key, known, n=1, cutoff=0.0)[0]
    message = f"{key}: not a key of the config file; nearest is {near}"
    raise InputError(message)


def _pattern(name: str) -> str:
    """Return what matches a key with any label and any number in it."""
    return re.escape(name).replace(r"\{label\}", r"[^.]+").replace(r"\[i\]", r"(\[(i|\d+)\])?")
