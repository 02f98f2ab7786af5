import itertools
import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from agg_fairseq.f2 import equal_frequency, equal_token, mefmax
from agg_fairseq.f2.frequency_classes import assign_classes


def efficiency(values):
    """Eq. 6, of values scaled to sum to 1; 1 for a set of one, and for a set without mass."""
    shares = torch.tensor(values).double()
    if len(shares) == 1 or shares.sum() == 0:
        return 1.0
    return torch.special.entr(shares / shares.sum()).sum().item() / math.log(len(shares))


def mean_efficiency(counts, sizes):
    """Eq. 5, of consecutive classes of the given sizes over sorted counts."""
    masses, within, start = [], 0.0, 0
    for size in sizes:
        class_counts = counts[start : start + size]
        masses.append(sum(class_counts))
        within += efficiency(class_counts)
        start += size
    return efficiency(masses) + within / len(sizes)


def printed_algorithm(counts):
    """Algorithm 1, with its cut-offs in whole numbers (tar·total·K instead of tar): sizes of the
    best classes."""
    total, n = sum(counts), len(counts)
    best, best_efficiency = None, 0.0
    for number in range(1, total // counts[0] + 1):
        bounds, tar, cum, idx = [], 1, 0, 0
        while tar < number:
            cum += counts[idx]
            idx += 1
            if cum * number > tar * total:
                tar += 1
                bounds.append(idx)
        sizes = [b - a for a, b in itertools.pairwise([0, *bounds, n]) if b > a]
        found = mean_efficiency(counts, sizes)
        if best_efficiency < found - 1e-12:
            best, best_efficiency = sizes, found
    return best


def zipf(size, scale=10_000):
    return [int(scale / (rank + 2)) for rank in range(size)]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40).filter(any))
@example(zipf(300))
@example([4096 >> rank for rank in range(13)])
@example([3, 0, 0])
@example([10, 10, 10, 1, 1, 1, 1, 1, 1])
def test_mefmax_is_the_printed_algorithm(counts):
    classes = mefmax(torch.tensor(counts))
    assert torch.bincount(classes).tolist() == printed_algorithm(sorted(counts, reverse=True))


@pytest.mark.parametrize(
    ("name", "number"), [("mefmax", 0), ("equal-frequency", 3), ("equal-token", 4)]
)
def test_order_of_the_vocabulary_does_not_matter(name, number):
    counts = torch.arange(900, 0, -30)  # no ties
    shuffle = torch.randperm(len(counts))
    found = assign_classes(name, number, counts[shuffle])
    assert torch.equal(found, assign_classes(name, number, counts)[shuffle])


def test_equal_frequency_has_equal_masses():
    counts = torch.tensor([*zipf(2000), 0])
    classes = equal_frequency(counts, 5)
    masses = torch.zeros(5, dtype=torch.int64).index_add_(0, classes, counts)
    assert (masses - counts.sum() / 5).abs().max() <= counts.max()


@pytest.mark.parametrize("number, sizes", [(1, [10]), (3, [4, 3, 3]), (10, [1] * 10)])
def test_equal_token_has_equal_sizes(number, sizes):
    classes = equal_token(torch.arange(10), number)
    assert torch.bincount(classes).tolist() == sizes
    assert classes[-1] == 0 and classes[0] == number - 1  # sorted by decreasing count


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("equal-token", 4, "expected 1 to 3 classes"),
        ("equal-frequency", 3, "none of them empty, got 3"),
        ("mefmax", 3, "expected no --f2-classes"),
    ],
)
def test_numbers_of_classes_that_are_refused(name, number, message):
    with pytest.raises(ValueError, match=message):
        assign_classes(name, number, torch.tensor([5, 5, 5]))
