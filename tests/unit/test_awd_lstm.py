import pytest
import torch
from torch.nn import functional

from agg_fairseq.awd_lstm.modules import AwdLSTM, LSTMDropout, activation_penalty, embedding_dropout, locked_dropout

NONE = LSTMDropout(0.0, 0.0, 0.0, 0.0, 0.0)


def model(dropout=NONE, layers=3):
    return AwdLSTM(5, 7, layers, dropout).double()


def batch():
    return torch.randint(11, (4, 6)), torch.randn(11, 5, dtype=torch.float64)


def test_layers_without_dropout_are_those_of_torch():
    lstm, (tokens, embedding) = model(), batch()
    x, states = functional.embedding(tokens, embedding).transpose(0, 1), []
    for layer in lstm.layers:
        x, state = layer(x)
        states.append(state)
    features, raw, found = lstm(tokens, embedding)
    torch.testing.assert_close(features, x.transpose(0, 1))
    assert features.equal(raw)
    for (h, c), (h_, c_) in zip(found, states, strict=True):
        torch.testing.assert_close([h, c], [h_[0], c_[0]])
    assert [layer.hidden_size for layer in lstm.layers] == [7, 7, 5]


def test_locked_dropout_has_one_mask_for_all_positions():
    x = torch.ones(50, 40, 30)
    dropped = locked_dropout(x, 0.3, True)
    assert torch.equal(dropped, dropped[:1].expand_as(x))
    assert set(dropped.unique().tolist()) == {0.0, float(torch.tensor(1.0) / 0.7)}
    assert (dropped[0] == 0).float().mean() == pytest.approx(0.3, abs=0.04)
    assert locked_dropout(x, 0.3, False) is x and locked_dropout(x, 0.0, True) is x


def test_embedding_dropout_drops_whole_words():
    """As the embedding by a matrix whose rows are dropped."""
    tokens, weight = torch.randint(200, (30, 20)), torch.rand(200, 3) + 1
    dropped = embedding_dropout(tokens, weight, 0.25, True)
    kept = {}
    for token, row in zip(tokens.flatten().tolist(), dropped.flatten(0, 1), strict=True):
        expected = weight[token] / 0.75 if row.any() else torch.zeros(3)
        torch.testing.assert_close(row, expected)
        assert kept.setdefault(token, bool(row.any())) == bool(row.any())
    assert 1 - sum(kept.values()) / len(kept) == pytest.approx(0.25, abs=0.1)
    assert torch.equal(embedding_dropout(tokens, weight, 0.25, False), weight[tokens])


def test_weight_dropout_drops_recurrent_entries_once_per_batch():
    """The result is that of `nn.LSTM` with the recurrent matrix dropped in advance, for all positions the same."""
    lstm, (tokens, embedding) = model(LSTMDropout(0.0, 0.0, 0.0, 0.0, 0.5), layers=1), batch()
    [layer] = lstm.layers
    torch.manual_seed(5)
    features, _, _ = lstm(tokens, embedding)
    torch.manual_seed(5)
    dropped = functional.dropout(layer.weight_hh_l0.detach(), 0.5)
    assert (dropped == 0).double().mean() == pytest.approx(0.5, abs=0.15)
    reference = torch.nn.LSTM(5, 5).double()
    reference.load_state_dict({**layer.state_dict(), "weight_hh_l0": dropped})
    expected, _ = reference(functional.embedding(tokens, embedding).transpose(0, 1))
    torch.testing.assert_close(features, expected.transpose(0, 1))
    features.sum().backward()
    assert (layer.weight_hh_l0.grad == 0).any() and layer.weight_hh_l0.grad.any()


@pytest.mark.parametrize("name", LSTMDropout._fields)
def test_every_dropout_acts_in_training_alone(name):
    lstm, (tokens, embedding) = model(NONE._replace(**{name: 0.5})), batch()
    plain = model()
    plain.load_state_dict(lstm.state_dict())
    expected, _, _ = plain(tokens, embedding)
    features, raw, _ = lstm(tokens, embedding)
    assert not torch.allclose(features, expected)
    assert torch.equal(features, raw) == (name != "output")
    torch.testing.assert_close(lstm.eval()(tokens, embedding)[0], expected)


def test_activation_penalty_by_hand():
    """Means of squares, over the positions that are not padding."""
    dropped, raw = torch.randn(3, 6, 4).double(), torch.randn(3, 6, 4).double()
    kept = torch.ones(3, 6, dtype=torch.bool)
    kept[1, 2:] = False
    rows = [(dropped[0], raw[0]), (dropped[1, :2], raw[1, :2]), (dropped[2], raw[2])]
    size = torch.cat([d for d, _ in rows]).pow(2).mean()
    change = torch.cat([r[1:] - r[:-1] for _, r in rows]).pow(2).mean()
    found = activation_penalty(dropped, raw, kept, alpha=2.0, beta=0.5)
    torch.testing.assert_close(found.double(), 2 * size + 0.5 * change, rtol=1e-5, atol=1e-5)
