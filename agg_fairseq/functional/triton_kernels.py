"""The kernels of `softmax_kernel.py`, in Triton."""

import triton
import triton.language as tl


@triton.jit
def rows(
    z_ptr, out_ptr, y_ptr, first_ptr, last_ptr, factor_ptr, shift_ptr, lse_ptr, nll_ptr, total_ptr,
    at_target_ptr, V, WIDTH, z_stride, out_stride, share, others, softcap, scale,
    HAS_LSE: tl.constexpr, WRITES: tl.constexpr, HAS_TARGET: tl.constexpr, HAS_RANGE: tl.constexpr,
    HAS_FACTOR: tl.constexpr, HAS_SHIFT: tl.constexpr, CAPS: tl.constexpr, SLOPES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row of `exp(z − lse) · factor − shift`, and what is summed over it. Loads and stores are
    those of whole vectors, since their masks end at WIDTH, a multiple of 16 in half precision."""
    row = tl.program_id(0).to(tl.int64)
    first = 0  # the columns that compete
    last = V
    if HAS_RANGE:
        first = tl.load(first_ptr + row).to(tl.int32)
        last = tl.load(last_ptr + row).to(tl.int32)
    z_ptr += row * z_stride
    out_ptr += row * out_stride
    columns = tl.arange(0, BLOCK)
    if HAS_LSE:
        largest = tl.load(lse_ptr + row)
        log_sum = 0.0
    else:
        # Each lane keeps its largest logit, and a sum relative to it.
        maxima = tl.full((BLOCK,), float("-inf"), tl.float32)
        sums = tl.zeros((BLOCK,), tl.float32)
        totals = tl.zeros((BLOCK,), tl.float32)
        for start in range(first // BLOCK * BLOCK, last, BLOCK):
            k = start + columns
            z = tl.load(z_ptr + k, mask=k < WIDTH, other=0.0)
            if CAPS:
                z = softcap * _tanh(z / softcap)
            competes = (k >= first) & (k < last)
            z = tl.where(competes, z, float("-inf"))
            new = tl.maximum(maxima, z)
            base = tl.where(new == float("-inf"), 0.0, new)
            sums = sums * tl.exp(maxima - base) + tl.exp(z - base)
            maxima = new
            if HAS_SHIFT:
                totals += tl.where(competes, z, 0.0)
        largest = tl.max(maxima, 0)
        log_sum = tl.log(tl.sum(sums * tl.exp(maxima - largest), 0))
        tl.store(lse_ptr + row, largest + log_sum)
        if HAS_SHIFT:
            tl.store(total_ptr + row, tl.sum(totals, 0))
    factor = scale
    if HAS_FACTOR:
        factor *= tl.load(factor_ptr + row)
    shift = share * factor
    if HAS_LSE and HAS_SHIFT:
        shift = scale * tl.load(shift_ptr + row)
    y = -1
    entry = 0.0
    if HAS_TARGET:
        y = tl.load(y_ptr + row).to(tl.int32)
        z_y = tl.load(z_ptr + y)
        if CAPS:
            z_y = softcap * _tanh(z_y / softcap)
        # The logits come first: they cancel exactly where y is the arg-max.
        nll = (largest - z_y) + log_sum
        tl.store(nll_ptr + row, nll)
        # P[y] − 1, by its series where P[y] is nearly 1
        series = -nll * (1 - nll * (0.5 - nll * (1.0 / 6 - nll / 24)))
        entry = tl.where(nll < 0.02, series, tl.exp(-nll) - 1)
        entry = (entry + others) * factor
        if SLOPES:
            entry *= 1 - (z_y / softcap) * (z_y / softcap)
        tl.store(at_target_ptr + row, entry)
    if WRITES:
        for start in range(0, WIDTH, BLOCK):
            k = start + columns
            z = tl.load(z_ptr + k, mask=k < WIDTH, other=0.0)
            if CAPS:
                z = softcap * _tanh(z / softcap)
            value = tl.exp((z - largest) - log_sum) * factor
            if HAS_SHIFT:
                value -= shift
            if SLOPES:
                value *= 1 - (z / softcap) * (z / softcap)
            if HAS_TARGET:
                value = tl.where(k == y, entry, value)
            value = tl.where((k >= first) & (k < last), value, 0.0)
            # The row of the residual may overlay that of the logits, with numbers of half the size:
            # all of a block has to be read before it is written.
            tl.debug_barrier()
            tl.store(out_ptr + k, value.to(out_ptr.dtype.element_ty), mask=k < WIDTH)


@triton.jit
def gate(matrix_ptr, y_ptr, gate_ptr, V, WIDTH, stride, BLOCK: tl.constexpr):
    """One block of a row, times the gates, but for the target's entry."""
    row = tl.program_id(0).to(tl.int64)
    matrix_ptr += row * stride
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(matrix_ptr + k, mask=k < WIDTH)
    gate = tl.load(gate_ptr + k, mask=k < V, other=1.0)
    gate = tl.where(k == tl.load(y_ptr + row), 1.0, gate)
    value = (value.to(tl.float32) * gate).to(matrix_ptr.dtype.element_ty)
    tl.store(matrix_ptr + k, value, mask=k < WIDTH)


@triton.jit
def _tanh(x):
    return 1 - 2 / (tl.exp(2 * x) + 1)
