import math
import sys

import numpy as np
import pytest
import torch

from agg_fairseq.metrics import (
    Embeddings,
    geometry,
    isoscore,
    isotropy,
    mean_cosine,
    mean_cross_cosine,
    mean_inner_product,
    mean_row,
)


def algorithm_1(points):
    """IsoScore of points (V, D), step by step as Rudman et al. (2022) have it in Algorithm 1."""
    x = np.asarray(points, dtype=np.float64)
    n = x.shape[1]
    axes = np.linalg.eigh(np.cov(x, rowvar=False))[1]  # 2: principal component analysis
    # 3: the diagonal of the covariance
    variances = np.diag(np.cov((x - x.mean(0)) @ axes, rowvar=False))
    normalized = np.sqrt(n) * variances / np.linalg.norm(variances)  # 4
    defect = np.linalg.norm(normalized - np.ones(n)) / np.sqrt(2 * (n - np.sqrt(n)))  # 5
    phi = (n - defect**2 * (n - np.sqrt(n))) ** 2 / n**2  # 6
    return (n * phi - 1) / (n - 1)  # 7


@pytest.mark.parametrize("shape", [(50, 2), (9, 16), (2, 5), (9000, 3)])
def test_isoscore_is_that_of_the_algorithm(shape):
    points = torch.randn(shape, dtype=torch.float64) * torch.rand(shape[1], dtype=torch.float64) + 3
    for scale in (1e-30, 1, 1e30):  # beyond those whose squares are in the range of float32
        assert isoscore(scale * points) == pytest.approx(algorithm_1(points), abs=1e-12)
        assert isoscore((scale * points).float()) == pytest.approx(algorithm_1(points), abs=1e-6)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (torch.full((7, 3), 0.1), 0.0),  # equal rows use no dimension
        (torch.zeros(4, 3), 0.0),
        (torch.randn(6, 1), 1.0),  # the only dimension is used
        (torch.full((6, 1), 0.1), 0.0),
        (torch.randn(2, 8), 0.0),  # two points lie on a line
    ],
)
def test_isoscore_of_degenerate_rows(rows, expected):
    assert isoscore(rows) == pytest.approx(expected, abs=1e-12) and 0 <= isoscore(rows) <= 1


def test_isoscore_of_rows_that_are_nearly_the_same():
    """Their mean would be rounded in float32."""
    rows = 1 + 2**-20 * torch.randint(0, 2, (2000, 64)).float()
    assert isoscore(rows) == pytest.approx(isoscore(rows.double()), abs=1e-6)


def test_a_nan_is_no_direction_that_is_left_out():
    rows = torch.eye(3, 2).index_fill(0, torch.tensor([1]), math.nan)
    assert math.isnan(isoscore(rows)) and math.isnan(mean_cosine(rows))


def test_isotropy_by_hand():
    """±e1, ±e2: Z is 2 + 2 cosh 1 along both. One row (2, 0): Z(±e1) = e^±2 by eigh's sign, Z(e2) =
    1; I is e^−2."""
    cross = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    assert isotropy(cross) == pytest.approx(1.0)
    assert mean_cosine(cross) == pytest.approx((0 - 4) / 16)
    assert isotropy(torch.tensor([[2.0, 0.0]])) == pytest.approx(math.exp(-2))
    assert 0 <= isotropy(torch.randn(20, 4) * 1e4) <= 1


def test_means_against_all_pairs(monkeypatch):
    monkeypatch.setattr(sys.modules["agg_fairseq.metrics.isotropy"], "CHUNK_ROWS", 7)
    w = torch.randn(30, 6, dtype=torch.float64) + 0.5
    cosines = torch.nn.functional.cosine_similarity(w[:, None], w[None], dim=2)
    assert mean_cosine(w) == pytest.approx((cosines.sum().item() - 30) / 900)
    assert mean_cross_cosine(w[:10], w[10:]) == pytest.approx(cosines[:10, 10:].mean().item())
    products = (w @ w.t()).fill_diagonal_(0)
    assert mean_inner_product(w) == pytest.approx(products.sum().item() / (30 * 29), rel=1e-12)
    zeros = torch.zeros(2, 6)  # rows of which have no direction
    assert mean_cosine(torch.cat([w, zeros])) == pytest.approx(mean_cosine(w))
    undefined = mean_cosine(zeros), mean_cross_cosine(w, zeros), mean_inner_product(w[:1])
    assert all(map(math.isnan, undefined))


def test_singular_values_and_projection_against_numpy():
    w = torch.randn(40, 6) + 1
    expected = torch.from_numpy(np.linalg.svd(w.double().numpy(), compute_uv=False))
    found, projected = Embeddings(w).singular_values(), Embeddings(w).principal_projection()
    torch.testing.assert_close(found, expected / expected[0], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(projected.norm(dim=0), expected[:2])
    assert (projected.mean(0) >= 0).all()


def z_ratio(w, signs=(1, -1)):
    """I(W) in numpy; by default over both signs of each eigenvector, as their choice is the
    solver's."""
    vectors = np.linalg.eigh(w.T @ w)[1]
    z = np.exp(np.concatenate([sign * w @ vectors for sign in signs], axis=1)).sum(0)
    return z.min() / z.max()


# far away, WᵀW − V μμᵀ would have lost half of its digits
@pytest.mark.parametrize(("distance", "own_center"), [(0.3, True), (1e4, True), (1e4, False)])
def test_geometry_against_numpy(distance, own_center):
    scales = torch.linspace(0.2, 1, 6, dtype=torch.float64)
    w = torch.randn(60, 6, dtype=torch.float64) * scales + distance
    center = mean_row(w) if own_center else scales + distance
    found = geometry(w, center=None if own_center else center)
    moved = (w - center).numpy()
    directions = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    cosines = directions @ directions.T
    lengths = np.linalg.norm(w.numpy(), axis=1)
    expected = {
        "isotropy": isotropy(w),
        "isotropy_centered": z_ratio(moved, (1,)),
        "mean_cosine": mean_cosine(w),
        "mean_cosine_centered": (cosines.sum() - 60) / 3600,
        "mean_share": np.linalg.norm(w.numpy().mean(0)) / lengths.mean(),
        "isoscore": algorithm_1(w),
    }
    assert found._asdict() == pytest.approx(expected, rel=1e-6)
    found = Embeddings(w - center).isotropy_both_signs()
    assert found == pytest.approx(z_ratio(moved), rel=1e-9)


def test_geometry_where_a_measure_is_not_defined():
    zeros, equal = geometry(torch.zeros(4, 3)), geometry(torch.full((7, 3), 0.1))
    for name, value in zeros._asdict().items():
        undefined = name in ("mean_cosine", "mean_cosine_centered", "mean_share")
        assert math.isnan(value) == undefined, name
    for name, value in equal._asdict().items():
        assert math.isnan(value) == (name == "mean_cosine_centered"), name
    assert equal.mean_share == pytest.approx(1) and equal.isotropy_centered == 1
