import pytest
import torch

from agg_fairseq.functional import freezing_gates, gated_cross_entropy


@pytest.mark.parametrize("parts", ["b", "c", "bc"])
def test_parts_of_equation_4(parts):
    h, w = torch.randn(20, 3).double(), torch.randn(7, 3).double().requires_grad_()
    y, rare = torch.randint(7, (20,)), torch.arange(7) >= 4
    p = (h @ w.t()).softmax(1).detach()
    expected = torch.zeros_like(w)
    for r in range(7):
        for i in range(20):
            if y[i] == r:
                expected[r] += (p[i, r] - 1) * h[i]  # (a)
            elif not rare[r] or ("c" if rare[y[i]] else "b") not in parts:
                expected[r] += p[i, r] * h[i]
    out = gated_cross_entropy(h, w, y, gates=freezing_gates(rare, parts))
    torch.testing.assert_close(torch.autograd.grad(out.loss, w)[0], expected)


def test_freezing_gates_refuse_unknown_parts():
    with pytest.raises(ValueError, match="b, c, bc"):
        freezing_gates(torch.zeros(3, dtype=torch.bool), "a")
