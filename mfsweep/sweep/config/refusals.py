"""How a mistake is refused where it is found, and told in one line."""

import reprlib
from typing import NoReturn

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

_MAX_LINE = 300 - len("mfsweep: ")
"""The command line puts its name before a refusal; the whole line has at most 300 characters."""


def refuse(allowed: str, remedy: str = "", *at: object, **got: object) -> NoReturn:
    """Refuse the value under validation, or `got` that lies in it at the keys `at`."""
    context = {"allowed": allowed, "remedy": remedy, "at": at, **got}
    error = PydanticCustomError("refused", "{allowed}", context)
    raise error


def told(error: ValidationError) -> str:
    """Put the first mistake in one line and count the others."""
    first, *others = error.errors()
    context = {"allowed": first["msg"], "remedy": "", "at": ()} | first.get("ctx", {})
    if not context["at"]:
        context["got"] = first["input"]
    loc = first["loc"]
    if loc[:1] == ("families",):
        loc = loc[:2] + loc[3:]  # without the kind
    path = dotted((*loc, *context["at"]))
    shown = f" = {one_line(_SHOWN.repr(context['got']), 80)}" if "got" in context else ""
    parent = path.rpartition("[")[0] if path.endswith("]") else ""
    remedy = f"correct or remove it from {parent}" if parent else "correct it"
    more = f" (and {len(others)} more)" if others else ""
    line = f"{path}{shown}: {context['allowed']}; {context['remedy'] or remedy}"
    return one_line(line, _MAX_LINE - len(more)) + more


def dotted(steps: tuple[object, ...]) -> str:
    """Write the keys and indices that lead to a value as the user would."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step not in ("<one>", "<list>"):
            path += f".{one_line(str(step), 40)}"
    return path.removeprefix(".") or "the file"


def one_line(text: str, limit: int = _MAX_LINE) -> str:
    """Put a message in one printable line, cut at the limit.

    Examples
    --------
    >>> one_line("a message of   many words", 15)
    'a message of...'
    """
    line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


class _Shown(reprlib.Repr):
    """A value as YAML spells it, shortened."""

    def repr_float(self, value: float, _level: int) -> str:
        return repr(value).replace("inf", ".inf").replace("nan", ".nan")

    def repr_bool(self, value: bool, _level: int) -> str:
        return str(value).lower()

    def repr_NoneType(self, _value: None, _level: int) -> str:
        return "null"


_SHOWN = _Shown()
_SHOWN.maxlevel, _SHOWN.maxdict, _SHOWN.maxlist, _SHOWN.maxtuple = 2, 3, 4, 4
_SHOWN.maxstring = _SHOWN.maxother = 60
