"""Geometry and IsoScore against float64 oracles, on degenerate input, and as docs/evaluation.md shows them."""

import doctest
import math
import re

import numpy as np
import pytest
import torch

from agg_fairseq.metrics import geometry, isoscore, isotropy, mean_cosine, mean_row
from tests.conftest import ROOT
from tests.isoscore import algorithm_1


@pytest.mark.parametrize("shape", [(50, 2), (200, 16), (9, 16), (2, 5), (9000, 3)])
def test_isoscore_is_that_of_the_algorithm(shape):
    points = torch.randn(shape, dtype=torch.float64) * torch.rand(shape[1], dtype=torch.float64) + 3
    assert isoscore(points) == pytest.approx(algorithm_1(points), abs=1e-12)


def test_isoscore_is_the_share_of_dimensions_that_are_used():
    """±e_j for k of D axes: (k − 1) / (D − 1), for any mean and scale."""
    for used, scale in ((1, 1e-30), (3, 1), (5, 1e30)):
        axes = torch.eye(5, dtype=torch.float64)[:used]
        points = torch.cat([axes, -axes])
        assert isoscore(scale * (points + 7)) == pytest.approx((used - 1) / 4, abs=1e-12)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (torch.full((7, 3), 0.1), 0.0),  # equal rows use no dimension
        (torch.randn(1, 3), 0.0),
        (torch.zeros(4, 3), 0.0),
        (torch.randn(6, 1), 1.0),  # the only dimension is used
        (torch.full((6, 1), 0.1), 0.0),
        (torch.randn(2, 8), 0.0),  # two points lie on a line
        (torch.eye(3, 8), 1 / 7),  # three that are equally far from each other spread evenly over a plane
        (torch.cat([torch.eye(4), torch.zeros(3, 4)]), algorithm_1(torch.cat([torch.eye(4), torch.zeros(3, 4)]))),
    ],
)
def test_isoscore_of_degenerate_rows(rows, expected):
    assert isoscore(rows) == pytest.approx(expected, abs=1e-12) and 0 <= isoscore(rows) <= 1


def z_ratio(w):
    """I(W) in numpy, over both signs of each eigenvector, as their choice is the solver's."""
    vectors = np.linalg.eigh(w.T @ w)[1]
    z = np.exp(np.concatenate([w @ vectors, -w @ vectors], axis=1)).sum(0)
    return z.min() / z.max()


@pytest.mark.parametrize("distance", [0.3, 1e4])  # at the second, WᵀW − V μμᵀ would have lost half of its digits
@pytest.mark.parametrize("of_its_own", [True, False])
def test_geometry_against_numpy(distance, of_its_own):
    w = torch.randn(60, 6, dtype=torch.float64) * torch.linspace(0.2, 1, 6, dtype=torch.float64) + distance
    center = mean_row(w) if of_its_own else torch.linspace(-1, 1, 6, dtype=torch.float64) + distance
    found = geometry(w, center=None if of_its_own else center)
    moved = (w - center).numpy()
    directions = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    cosines = directions @ directions.T
    assert found.mean_cosine_centered == pytest.approx((cosines.sum() - 60) / 3600, rel=1e-9)
    assert isotropy(w - center, both_signs=True) == pytest.approx(z_ratio(moved), rel=1e-9)
    assert found.isotropy_centered == pytest.approx(isotropy(w - center), rel=1e-6)
    lengths = np.linalg.norm(w.numpy(), axis=1)
    assert found.mean_share == pytest.approx(np.linalg.norm(w.numpy().mean(0)) / lengths.mean(), rel=1e-12)
    assert found.isoscore == pytest.approx(algorithm_1(w), rel=1e-9)
    assert (found.isotropy, found.mean_cosine) == (isotropy(w), mean_cosine(w))


def test_geometry_where_a_measure_is_not_defined():
    zeros, equal = geometry(torch.zeros(4, 3)), geometry(torch.full((7, 3), 0.1))
    assert [name for name, value in zeros._asdict().items() if math.isnan(value)] == [
        "mean_cosine", "mean_cosine_centered", "mean_share",
    ]  # fmt: skip
    assert [name for name, value in equal._asdict().items() if math.isnan(value)] == ["mean_cosine_centered"]
    assert equal.mean_share == pytest.approx(1) and equal.isotropy_centered == 1


def test_the_examples_of_the_documentation():
    """A shift of all rows moves I(W) to near 1; the output is what the page shows."""
    text = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(>>> .*?)```", text, re.DOTALL)
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(example, {}, "evaluation.md", None, 0))
    assert runner.tries == 9 and runner.failures == 0
