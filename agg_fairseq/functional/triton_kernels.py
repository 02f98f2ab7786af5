"""The kernel of `softmax_kernel.py`, in Triton."""

import triton
import triton.language as tl


@triton.jit
def softmax_grad(
    z_ptr, out_ptr, y_ptr, factor_ptr, nll_ptr, total_ptr, V, WIDTH, out_stride,
    share, others, HAS_FACTOR: tl.constexpr, HAS_SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row of `factor · (softmax z − Q)`, −log P[y] and −Σ log P. The logits lie in rows of WIDTH
    numbers, a multiple of 16 in half precision: masks end there, so that loads and stores are those
    of whole vectors."""
    row = tl.program_id(0).to(tl.int64)
    z_ptr += row * WIDTH
    out_ptr += row * out_stride
    columns = tl.arange(0, BLOCK)
    # Each lane keeps its largest logit, and a sum relative to it.
    maxima = tl.full((BLOCK,), float("-inf"), tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    totals = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, V, BLOCK):
        k = start + columns
        z = tl.load(z_ptr + k, mask=k < WIDTH, other=0.0)
        z = tl.where(k < V, z, float("-inf"))
        new = tl.maximum(maxima, z)
        base = tl.where(new == float("-inf"), 0.0, new)
        sums = sums * tl.exp(maxima - base) + tl.exp(z - base)
        maxima = new
        if HAS_SHIFT:
            totals += tl.where(k < V, z, 0.0)
    largest = tl.max(maxima, 0)
    log_sum = tl.log(tl.sum(sums * tl.exp(maxima - largest), 0))
    if HAS_SHIFT:
        tl.store(total_ptr + row, V * (largest + log_sum) - tl.sum(totals, 0))
    factor = 1.0
    if HAS_FACTOR:
        factor = tl.load(factor_ptr + row)
    y = tl.load(y_ptr + row).to(tl.int32)
    # The logits come first: they cancel exactly where y is the arg-max.
    nll = (largest - tl.load(z_ptr + y)) + log_sum
    tl.store(nll_ptr + row, nll)
    # P[y] − 1, by its series where P[y] is nearly 1
    series = -nll * (1 - nll * (0.5 - nll * (1.0 / 6 - nll / 24)))
    entry = (tl.where(nll < 0.02, series, tl.exp(-nll) - 1) + others) * factor
    for start in range(0, WIDTH, BLOCK):
        k = start + columns
        z = tl.load(z_ptr + k, mask=k < WIDTH, other=0.0)
        value = (tl.exp((z - largest) - log_sum) - share) * factor
        value = tl.where(k == y, entry, value)
        value = tl.where(k < V, value, 0.0)
        # The row of the gradient may overlay that of the logits, with numbers of half the size: all
        # of a block has to be read before it is written.
        tl.debug_barrier()
        tl.store(out_ptr + k, value.to(out_ptr.dtype.element_ty), mask=k < WIDTH)
