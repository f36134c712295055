"""Pieces of compiled loops that vectorise: licences, the exponential, the dot product."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from mfsweep._types import Array

REDUCTION = {"nnan", "ninf", "nsz", "contract", "reassoc"}
"""Floating-point licences of a sum that is to vectorise; every operand is finite."""
ELEMENTWISE = REDUCTION - {"reassoc"}
"""Licences of an expression whose order of operations matters."""

# Interpolations of e^r at the Chebyshev nodes of |r| <= 1.001 ln(2) / 2, highest power first:
# relative error 3e-16 in float64, 3e-9 before rounding in float32.
_P64: tuple[float, ...] = (
    2.7626426376580335e-07,
    2.7640263790318923e-06,
    2.4801504180837137e-05,
    1.9841170070971308e-04,
    1.3888888932619635e-03,
    8.3333333858250850e-03,
    4.1666666666572770e-02,
    1.6666666666553953e-01,
    5.0000000000000060e-01,
    1.0000000000000069e00,
    1.0,
)
_P32: tuple[float, ...] = (
    1.394121313e-03,
    8.375210201e-03,
    4.166635164e-02,
    1.666641451e-01,
    5.000000047e-01,
    1.000000038e00,
    1.0,
)
# ln 2 in two parts, the first exact in a product with the exponent
_LN2_64 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_LN2_32 = (0.693359375, -2.12194440e-4)


@intrinsic
def _power_of_two(_: Any, t: types.Float, magic: types.Float) -> Any:
    """Read the integer k from t = k + magic, magic = 1.5 * 2^(mantissa bits); return 2^k."""
    mantissa, bias = (52, 1023) if t.bitwidth == 64 else (23, 127)

    def generate(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(signature.args[0].bitwidth)
        real = ir.DoubleType() if mantissa == 52 else ir.FloatType()
        exponent = builder.shl(builder.bitcast(arguments[0], word), ir.Constant(word, mantissa))
        biased = builder.add(exponent, ir.Constant(word, bias << mantissa))
        return builder.bitcast(biased, real)

    return t(t, magic), generate


def exponential(x: float) -> float:
    """Return e^x, x <= log of the largest float, flushed to the smallest normal number below it.

    x = k ln 2 + r, e^x = 2^k p(r); relative error under 1e-15 in float64, 2e-7 in float32. In
    compiled code it takes the type of x and vectorises, which the library's own does not.
    """
    return math.exp(x)


@overload(exponential, jit_options={"fastmath": ELEMENTWISE, "error_model": "numpy"})
def _exponential(x: Any) -> Callable[[Any], Any]:
    dtype: Any = np.float32 if x == types.float32 else np.float64
    powers, ln2 = (_P32, _LN2_32) if x == types.float32 else (_P64, _LN2_64)
    info = np.finfo(dtype)
    lowest, log2_e = dtype(math.log(info.tiny)), dtype(math.log2(math.e))
    magic = dtype(1.5 * 2**info.nmant)
    high, low = dtype(ln2[0]), dtype(ln2[1])
    leading, others = dtype(powers[0]), tuple(dtype(c) for c in powers[1:])

    def compiled(x: Any) -> Any:
        x = max(x, lowest)
        t = x * log2_e + magic
        k = t - magic
        r = x - k * high
        r = r - k * low
        p = leading
        for c in others:
            p = p * r + c
        return p * _power_of_two(t, magic)  # type: ignore[call-arg]

    return compiled


@njit(cache=True, fastmath=REDUCTION, error_model="numpy")
def dot(a: Array, b: Array) -> float:
    """Return sum_j a_j b_j over the length of b."""
    total = 0.0
    for j in range(b.size):
        total += a[j] * b[j]
    return total
