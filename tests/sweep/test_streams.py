import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfsweep._errors import InputError
from mfsweep.sweep.streams import ROOT, token_stream, weights_stream

WORDS = st.integers(0, 2**32 - 1)
KEYS = st.tuples(WORDS, st.integers(2, 4096), st.floats(0, 1, exclude_min=True, exclude_max=True))


def state(stream):
    return tuple(stream.generate_state(4))


def test_streams_are_pinned():
    assert state(token_stream(0, 2, 0.25)) == (2133167929, 3671679635, 2132003976, 4232615250)
    assert state(token_stream(7, 3, 0.5)) == (196140278, 1250961388, 443786443, 4047920755)
    assert state(weights_stream(0, 2, 0.25)) == (1072178238, 4158817765, 3023235367, 1545908897)


@given(KEYS)
def test_the_key_is_root_purpose_seed_d_and_the_bits_of_gap(key):
    seed, d, gap = key
    bits = int(np.float64(gap).view(np.uint64))
    words = [seed, d, bits % 2**32, bits // 2**32]
    assert token_stream(*key).entropy == [ROOT, 1, *words]
    assert weights_stream(*key).entropy == [ROOT, 2, *words]


@given(KEYS, KEYS)
def test_streams_are_equal_exactly_when_keys_are(one, other):
    assert (state(token_stream(*one)) == state(token_stream(*other))) == (one == other)
    assert state(token_stream(*one)) != state(weights_stream(*other))


def test_no_two_streams_of_a_dense_grid_of_keys_collide():
    gaps = (0.25, math.nextafter(0.25, 1), math.nextafter(0.25, 0), 0.5)
    streams = [
        state(stream(seed, d, gap))
        for stream, seed, d, gap in product(
            (token_stream, weights_stream), range(50), range(2, 12), gaps
        )
    ]
    assert len(set(streams)) == len(streams)


def test_draws_of_neighbouring_seeds_are_uncorrelated():
    draws = [np.random.default_rng(token_stream(seed, 2, 0.5)).normal(size=4000) for seed in (0, 1)]
    assert abs(np.corrcoef(draws)[0, 1]) < 4 / math.sqrt(4000)


@pytest.mark.parametrize(("seed", "d"), [(-1, 2), (2**32, 2), (0, -2), (0, 2**32)])
def test_a_key_that_does_not_fit_its_words_is_refused(seed, d):
    for stream in (token_stream, weights_stream):
        with pytest.raises(InputError, match=r"must be from 0 to 2\*\*32 - 1"):
            stream(seed, d, 0.5)
