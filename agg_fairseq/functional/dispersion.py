"""Sliced angular dispersion: how far directions are from being spread evenly around random great circles."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sliced_dispersion(weight: Tensor, *, seed: int, ignore_index: int | None = None) -> Tensor:
    """Distance of the rows' angles on one great circle, drawn at random, from evenly spaced angles.

    With p and q orthonormal, the plane of the circle, and n rows:

        θ_k  = atan2(w_k·q, w_k·p)                                   in (−π, π]
        θ*_k = mean θ − π + 2π (r_k + ½) / n,  r_k the rank of θ_k    evenly spaced, in the same order
        value = ½ · mean_k (θ_k − θ*_k)²

    θ* is the closest of all sets of evenly spaced angles. The mean of θ* is that of θ, so the part of the gradient that
    goes through it vanishes: `d value / dθ_k = (θ_k − θ*_k) / n`. The angles depend on directions only, with

        dθ_k/dw_k = ((w_k·p) q − (w_k·q) p) / ((w_k·p)² + (w_k·q)²)

    Cost: a product (V, D) x (D, 2) and its gradient, and sorting V angles: O(VD + V log V). Memory for vectors over V
    beyond the gradient. Computed in float32 whatever the dtype (float64 stays).

    Args:
        weight: (V, D) embeddings, floating point, D at least 2.
        seed: of the great circle. The same seed gives the same circle on every device.
        ignore_index: a row that is not a token (padding), excluded, also from n. Rows whose projection onto the plane
            is zero have no angle, and are always excluded.

    Returns:
        Scalar, float32 (float64 for float64 input): 0 where the angles are evenly spaced, π²/6 = 1.645 (1 − 1/n²) where
        all are equal.

    Raises:
        ValueError: `weight` is not a matrix with at least 2 columns.

    Reference: Tokarchuk, Bakker & Niculae (2025), "Keep your distance: learning dispersed embeddings on S_m" (sliced
    dispersion); used in translation by Tokarchuk, Nachesa, Troshin & Niculae (EACL Findings 2026). Versions of the
    authors' library sum or average over the rows; here they are averaged.
    """
    if weight.dim() != 2 or weight.size(1) < 2:
        raise ValueError(f"sliced_dispersion: expected weight of shape (V, D) with D >= 2, got {tuple(weight.shape)}")
    generator = torch.Generator().manual_seed(seed)
    drawn, triangle = torch.linalg.qr(torch.randn(weight.size(1), 2, dtype=torch.float64, generator=generator))
    plane = drawn * triangle.diagonal().sign()  # D x 2, p and q: uniformly distributed
    w = weight if weight.dtype == torch.float64 else weight.float()
    with torch.autocast(weight.device.type, enabled=False):
        plane = plane.to(w.dtype)
        if w.is_cuda:
            plane = plane.pin_memory()  # from where the copy does not wait for the GPU
        coordinates = w @ plane.to(w.device, non_blocking=True)  # V x 2, w·p and w·q

    counts = coordinates.detach().square().sum(1) > 0  # V, bool: rows that have an angle
    if ignore_index is not None:
        counts[ignore_index].zero_()
    n = counts.sum().clamp(min=1)
    # The angle of a row that does not count is 0, which carries no gradient, and its rank comes after those that do.
    along_p, along_q = coordinates.unbind(1)
    theta = torch.atan2(along_q.masked_fill(~counts, 0.0), along_p.masked_fill(~counts, 1.0))  # V
    with torch.no_grad():
        rank = theta.masked_fill(~counts, math.inf).argsort(stable=True).argsort()
        mean = (theta * counts).sum() / n
        even = mean - math.pi + 2 * math.pi * (rank.to(theta) + 0.5) / n  # θ*
    return 0.5 * ((theta - even) * counts).square().sum() / n
