"""The verbs of the command line that read a trained encoder: ``mfsweep weights``."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mfsweep._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

weights = typer.Typer(
    no_args_is_help=True, help="Read heads and tokens of a trained encoder (.safetensors)."
)

Model = Annotated[Path, typer.Argument(help="A BERT-like encoder, such as model.safetensors.")]
Heads = Annotated[
    int | None,
    typer.Option("--heads", min=1, help="Heads a layer; else config.json beside the file tells."),
]
DHead = Annotated[int | None, typer.Option("--d-head", min=1, help="Or dimensions of a head.")]

_SHOWN = (
    *("layer", "head", "rank_B", "condition_B", "asymmetry", "mu_1", "mu_1_imag", "mu_2"),
    *("gap", "dominant", "angle", "norm_B", "norm_V", "beta", "violated"),
)
_WIDTHS = [*(max(len(name), 9) for name in _SHOWN[:-1]), 0]


@weights.command()
def extract(
    model: Model,
    layer: Annotated[str, typer.Option("--layer", help="From 0, or all.")],
    head: Annotated[str, typer.Option("--head", help="From 0, or all.")],
    out: Annotated[Path, typer.Option("--out", help="An .npz file; a folder where all is asked.")],
    heads: Heads = None,
    d_head: DHead = None,
) -> None:
    """Write V and B of one head or many, for families of kind file.

    Example: mfsweep weights extract model.safetensors --layer 0 --head all --out heads
    """
    from mfsweep.dynamics.encoder import Encoder

    encoder = Encoder(model, n_heads=heads, d_head=d_head)
    layers = _asked("--layer", layer, encoder.layers)
    chosen = _asked("--head", head, range(encoder.n_heads))
    many = "all" in (layer, head)
    if not many and out.suffix != ".npz":
        message = f"--out {out}: must end in .npz where one head is asked for; correct it"
        raise InputError(message)
    for i in layers:
        for j in chosen:
            found = encoder.head(i, j)
            path = out / f"layer{i}-head{j}.npz" if many else out
            path.parent.mkdir(parents=True, exist_ok=True)
            found.save(path, model.name)
            typer.echo(f"wrote {path}: d = {encoder.d}, own beta {found.beta:.4g}, biases left out")


@weights.command()
def check(
    model: Model,
    to: Annotated[Path | None, typer.Option("--csv", help="Write the table here too.")] = None,
    heads: Heads = None,
    d_head: DHead = None,
) -> None:
    """Tell of every head how far the theory's assumptions hold.

    Example: mfsweep weights check model.safetensors --csv heads.csv
    """
    from contextlib import nullcontext

    from threadpoolctl import threadpool_limits

    from mfsweep.dynamics.encoder import Encoder

    encoder = Encoder(model, n_heads=heads, d_head=d_head)
    places = [(layer, head) for layer in encoder.layers for head in range(encoder.n_heads)]
    if to is not None:
        to.parent.mkdir(parents=True, exist_ok=True)
    with (
        threadpool_limits(1),  # on a busy machine threads wait longer than they work
        nullcontext() if to is None else to.open("w", newline="", encoding="utf-8") as file,
    ):
        for k, place in enumerate(places):
            row = encoder.head(*place).report()
            if k == 0:
                typer.echo(_line(_SHOWN))
            typer.echo(_line(row[name] for name in _SHOWN))
            if file is not None:
                csv.writer(file).writerows([row, row.values()] if k == 0 else [row.values()])


@weights.command()
def tokens(
    model: Model,
    out: Annotated[Path, typer.Option("--out", help="An .npz file.")],
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="How many, drawn by --seed; all.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the draw.")] = 0,
) -> None:
    """Write word embeddings, scaled to length 1, for initial tokens from a file.

    Example: mfsweep weights tokens model.safetensors --out tokens.npz --rows 8000
    """
    import numpy as np

    from mfsweep.dynamics.encoder import Encoder

    if out.suffix != ".npz":
        message = f"--out {out}: must end in .npz; correct it"
        raise InputError(message)
    found, places = Encoder(model).tokens(rows, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, tokens=found, rows=places)
    typer.echo(f"wrote {out}: {len(found)} tokens, d = {found.shape[1]}")


def _asked(option: str, text: str, known: "Sequence[int]") -> "Sequence[int]":
    """Read a number, or all."""
    if text == "all":
        return known
    if not text.isdecimal():
        allowed = f"must be a number from {known[0]} to {known[-1]}, or all"
        message = f"{option} {text}: {allowed}; correct it"
        raise InputError(message)
    return [int(text)]


def _line(cells: "Iterable[object]") -> str:
    """Put the cells of a row beneath those of the row before, numbers to four digits."""
    texts = (f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells)
    return "  ".join(f"{text:>{width}}" for text, width in zip(texts, _WIDTHS, strict=True))
