import math

import pytest
import torch

from agg_fairseq.awd_lstm.continuous_cache import CacheOptions, ContinuousCache


def loop(features, targets, model, size, theta, weight):
    """Grave et al. (2017), position by position in float64: (N, V) probabilities."""
    features, found = features.double(), []
    for t in range(len(targets)):
        cached, total = torch.zeros(model.size(1), dtype=torch.float64), 0.0
        for i in range(max(0, t - size), t):
            score = math.exp(theta * float(features[t] @ features[i]))
            cached[targets[i]] += score
            total += score
        p = model[t].double()
        found.append((1 - weight) * p + weight * cached / total if total else p)
    return torch.stack(found)


def text(positions=40, words=6, features=4):
    h, y = torch.randn(positions, features), torch.randint(words, (positions,))
    return h, y, torch.randn(positions, words).log_softmax(1)


@pytest.mark.parametrize("size", [1, 7, 39, 500])
@pytest.mark.parametrize(("theta", "weight"), [(0.0, 0.3), (0.7, 0.1), (2.0, 1.0), (0.7, 0.0)])
def test_equals_the_loop(size, theta, weight):
    """Whatever the blocks that the text is read in."""
    h, y, log_probs = text()
    expected = loop(h, y, log_probs.exp(), size, theta, weight)
    torch.testing.assert_close(expected.sum(1), torch.ones(len(y), dtype=torch.float64))
    for blocks in ([40], [1] * 40, [3, 20, 1, 16]):
        cache = ContinuousCache(CacheOptions(size, theta, weight))
        parts = zip(h.split(blocks), y.split(blocks), log_probs.split(blocks), strict=True)
        found = torch.cat([cache.add(*part) for part in parts])
        torch.testing.assert_close(found.exp().double(), expected, rtol=1e-5, atol=1e-7)


def test_large_scores_do_not_overflow():
    h, y, log_probs = text()
    found = ContinuousCache(CacheOptions(10, 1000.0, 0.5)).add(h, y, log_probs)
    assert not found.isnan().any() and (found.exp().sum(1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((0, 1.0, 0.1), "cache size: expected 1 to 2.31 - 1 positions, got 0"),
        ((5, -1.0, 0.1), "cache theta: expected a number of at least 0, got -1.0"),
        ((5, math.nan, 0.1), "cache theta: expected a number of at least 0, got nan"),
        ((5, 1.0, 1.5), r"cache lambda: expected a share in \[0, 1\], got 1.5"),
    ],
)
def test_cache_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        ContinuousCache(CacheOptions(*options))
