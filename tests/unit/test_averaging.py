"""The mean of states, by hand, against slow forms, and what refuses to be averaged."""

import io
import math
from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agg_fairseq.checkpoints.averaging import DTYPES, average_parameters
from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.modules import UnigramLinear


def named(*models):
    return {f"{index}.pt": model for index, model in enumerate(models)}


def models_of(*values, dtype=torch.float32):
    return named(*({"w": torch.tensor(value, dtype=dtype)} for value in values))


def test_by_hand():
    averaged = average_parameters(models_of([[1.0, 2.0]], [[3.0, 2.0]], [[8.0, -1.0]]))
    assert averaged["w"].tolist() == [[4.0, 1.0]] and averaged["w"].dtype == torch.float32


def test_sums_where_the_dtype_would_not():
    """2048 + 1 is 2048 in float16, and 60000 + 60000 infinite; 2^24 + 1 is 2^24 in float32."""
    assert average_parameters(models_of(2048.0, 1.0, 1.0, dtype=torch.float16))["w"].item() == 683.5  # of 683.33
    assert average_parameters(models_of(60000.0, 60000.0, dtype=torch.float16))["w"].item() == 60000
    assert average_parameters(models_of(2.0**24, 1.0, 1.0, 2.0))["w"].item() == 2**22 + 1
    assert average_parameters(models_of(256.0, 1.0, 1.0, dtype=torch.bfloat16))["w"].item() == 86


def averaged_as_fairseq(states):
    """What the scripts of fairseq do, by their source: float16 to float32, summed one after another, divided."""
    sums = OrderedDict()
    for state in states:
        for name, value in state.items():
            value = value.float() if value.dtype == torch.float16 else value
            sums[name] = sums[name] + value if name in sums else value.clone()
    return OrderedDict((name, value / len(states)) for name, value in sums.items())


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 5), st.sampled_from([torch.float16, torch.float32, torch.float64]), st.randoms()
)
def test_as_fairseq(number, size, dtype, chance):
    states = [
        {name: torch.tensor([chance.uniform(-9, 9) for _ in range(size)]).to(dtype) for name in ("b", "a")}
        for _ in range(number)
    ]
    found, expected = average_parameters(named(*states)), averaged_as_fairseq(states)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == dtype
        torch.testing.assert_close(
            found[name], value.to(dtype), rtol=2e-3 if dtype == torch.float16 else 1e-5, atol=1e-5
        )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=3, max_size=3), min_size=1, max_size=6))
def test_exactly(rows):
    """Against exact sums, rounded once; where large values cancel, float64 is what is left of them."""
    expected = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
    found = average_parameters(models_of(*rows))["w"]
    scale = max(abs(value) for row in rows for value in row)
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float32), rtol=2e-7, atol=scale * 1e-15 + 1e-45
    )


def test_of_equal_models_is_the_model():
    state = {
        "w": torch.randn(7, 3),
        "half": torch.randn(5).half(),
        "empty": torch.zeros(0, 2),
        "steps": torch.tensor(3),
    }
    averaged = average_parameters(named(state, {name: value.clone() for name, value in state.items()}, state))
    assert all(torch.equal(averaged[name], value) for name, value in state.items())
    assert all(averaged[name].data_ptr() != value.data_ptr() for name, value in state.items() if value.numel())


def test_inputs_stay():
    models = models_of([1.0], [3.0], dtype=torch.float64)
    average_parameters(models)
    assert [model["w"].item() for model in models.values()] == [1, 3]


def tied(number):
    weight = torch.full((4, 2), float(number))
    return {"in": weight, "out": weight, "bias": torch.zeros(2)}


def untied(number):
    return {name: value.clone() for name, value in tied(number).items()}


def test_tied_parameters_stay_tied():
    averaged = average_parameters(named(tied(1), tied(3)))
    assert averaged["in"] is averaged["out"] and averaged["in"].unique().tolist() == [2]
    sizes = []
    for state in (averaged, average_parameters(named(untied(1), untied(3))), tied(1)):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        sizes.append(buffer.tell())
    assert sizes[0] == sizes[2] < sizes[1]


def test_what_only_some_models_tie_does_not_stay_tied():
    other = untied(3)
    other["out"] += 2
    averaged = average_parameters(named(tied(1), other))
    assert averaged["in"].unique().tolist() == [2] and averaged["out"].unique().tolist() == [3]


def test_views_of_one_memory_are_different_parameters():
    memory = torch.arange(6.0)
    views = {"a": memory[:3], "b": memory[3:], "c": memory.view(2, 3)[0], "t": memory.view(2, 3).t()[:1]}
    averaged = average_parameters(named(views, views))
    assert all(torch.equal(averaged[name], value) for name, value in views.items())


def test_classes_of_a_factorized_softmax():
    classes = torch.tensor([0, 1, 1, 2])
    first, second = (FactorizedSoftmax(classes, 3).state_dict() for _ in range(2))
    assert first["class_of_token"].dtype == torch.float32  # else this test shows nothing
    averaged = average_parameters(named(first, second))
    assert averaged["class_of_token"].tolist() == [0, 1, 1, 2]
    torch.testing.assert_close(averaged["class_weight"], (first["class_weight"] + second["class_weight"]) / 2)
    FactorizedSoftmax(classes.flip(0), 3).load_state_dict(averaged)

    other = FactorizedSoftmax(torch.tensor([1, 0, 1, 2]), 3).state_dict()
    for prefix in ("", "decoder.output_projection."):
        models = named(*({f"{prefix}{name}": value for name, value in state.items()} for state in (first, other)))
        with pytest.raises(ValueError, match=rf"1.pt: found another {prefix}class_of_token than in 0.pt"):
            average_parameters(models)


def test_counts_of_a_log_unigram_bias():
    states = [
        UnigramLinear(nn.Parameter(torch.zeros(3, 2)), torch.tensor(c)).state_dict() for c in ([4, 2, 0], [4, 2, 1])
    ]
    assert average_parameters(named(states[0], states[0]))["counts"].tolist() == [4, 2, 0]
    with pytest.raises(ValueError, match="1.pt: found another counts than in 0.pt"):
        average_parameters(named(*states))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_what_is_no_floating_point_number(dtype):
    assert average_parameters(models_of([1, 0], [1, 0], dtype=dtype))["w"].dtype == dtype
    with pytest.raises(ValueError, match="2.pt: found another w than in 0.pt"):
        average_parameters(models_of([1, 0], [1, 0], [1, 1], dtype=dtype))


@pytest.mark.filterwarnings("ignore")  # of torch, over quantized and nested tensors
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(3).to_sparse(), "that is sparse or nested"),
        (lambda: torch.eye(3).to_sparse_csr(), "that is sparse or nested"),
        (lambda: torch.nested.nested_tensor([torch.ones(3)] * 3), "that is sparse or nested"),
        (lambda: torch.zeros(3, 3, device="meta"), "without values, on the device meta"),
        (lambda: torch.zeros(3, 3, dtype=torch.complex64), "of torch.complex64"),
        (lambda: torch.zeros(3, 3).to(torch.float8_e4m3fn), "of torch.float8_e4m3fn"),
        (lambda: torch.quantize_per_tensor(torch.zeros(3, 3), 1.0, 0, torch.qint8), "of torch.qint8"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_what_is_no_dense_tensor_of_real_numbers(make, words, first):
    models = {"odd.pt": {"w": make()}, "1.pt": {"w": torch.zeros(3, 3)}}
    with pytest.raises(ValueError, match=f"^odd.pt: found w {words}; expected a dense tensor"):
        average_parameters(models if first else dict(reversed(models.items())))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_that_is_let_through(dtype):
    assert average_parameters(models_of([1, 0], [1, 0], dtype=dtype))["w"].tolist() == [1, 0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_hidden(value):
    assert not average_parameters(models_of([1.0], [value]))["w"].isfinite().any()


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"a": torch.zeros(2)}, "1.pt: found no b, which 0.pt has; expected checkpoints of one model"),
        ({"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1)}, "1.pt: found c, which 0.pt does not have"),
        ({"a": torch.zeros(2), "b": torch.zeros(1)}, r"1.pt: found b of shape (1,), but (3,) in 0.pt"),
        ({"a": torch.zeros(2), "b": [0, 0, 0]}, "1.pt: found a list as b; expected a tensor"),
        ({}, "1.pt: found no parameters"),
        (None, "1.pt: found no parameters"),
        ({3: torch.zeros(2)}, "1.pt: found 3 as the name of a parameter; expected a string"),
    ],
)
def test_models_that_are_not_alike(second, words):
    with pytest.raises(ValueError) as caught:
        average_parameters(named({"a": torch.zeros(2), "b": torch.zeros(3)}, second))
    assert words in str(caught.value)


def test_no_models():
    with pytest.raises(ValueError, match="at least one model, got none"):
        average_parameters({})
