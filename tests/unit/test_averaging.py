import io

import pytest
import torch
from torch import nn

from agg_fairseq.checkpoints.averaging import average_parameters
from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.modules import UnigramLinear


def named(*models):
    return {f"{index}.pt": model for index, model in enumerate(models)}


def models_of(*values, dtype=torch.float32):
    return named(*({"w": torch.tensor(value, dtype=dtype)} for value in values))


def test_sums_where_the_dtype_would_not():
    """2048 + 1 is 2048 in float16, and 60000 + 60000 infinite; 2^24 + 1 is 2^24 in float32. The inputs stay."""
    models = models_of(2048.0, 1.0, 1.0, dtype=torch.float16)
    assert average_parameters(models)["w"].item() == 683.5  # of 683.33
    assert [model["w"].item() for model in models.values()] == [2048, 1, 1]
    assert average_parameters(models_of(60000.0, 60000.0, dtype=torch.float16))["w"].item() == 60000
    assert average_parameters(models_of(2.0**24, 1.0, 1.0, 2.0))["w"].item() == 2**22 + 1
    assert average_parameters(models_of(256.0, 1.0, 1.0, dtype=torch.bfloat16))["w"].item() == 86


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


def test_other_parameters_of_one_memory_are_not_tied():
    """Those that only some of the models tie, and views of one memory at different places."""
    other = untied(3)
    other["out"] += 2
    averaged = average_parameters(named(tied(1), other))
    assert averaged["in"].unique().tolist() == [2] and averaged["out"].unique().tolist() == [3]
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
    prefix = "decoder.output_projection."
    other = FactorizedSoftmax(torch.tensor([1, 0, 1, 2]), 3).state_dict()
    models = named(*({f"{prefix}{name}": value for name, value in state.items()} for state in (first, other)))
    with pytest.raises(ValueError, match=rf"1.pt: found another {prefix}class_of_token than in 0.pt"):
        average_parameters(models)


def test_what_is_no_weight_must_be_the_same():
    """Counts of a log-unigram bias, and what is no floating-point number."""
    weight = nn.Parameter(torch.zeros(3, 2))
    states = [UnigramLinear(weight, torch.tensor(counts)).state_dict() for counts in ([4, 2, 0], [4, 2, 1])]
    assert average_parameters(named(states[0], states[0]))["counts"].tolist() == [4, 2, 0]
    with pytest.raises(ValueError, match="1.pt: found another counts than in 0.pt"):
        average_parameters(named(*states))
    for dtype in (torch.int64, torch.bool):
        assert average_parameters(models_of([1, 0], [1, 0], dtype=dtype))["w"].dtype == dtype
        with pytest.raises(ValueError, match="2.pt: found another w than in 0.pt"):
            average_parameters(models_of([1, 0], [1, 0], [1, 1], dtype=dtype))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"a": torch.zeros(2)}, "0.pt: found b, which 1.pt does not have; expected checkpoints of one model"),
        ({"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1)}, "1.pt: found c, which 0.pt does not have"),
        ({"a": torch.zeros(2), "b": torch.zeros(1)}, r"1.pt: found b of shape (1,), but (3,) in 0.pt"),
    ],
)
def test_models_that_are_not_alike(second, words):
    with pytest.raises(ValueError) as caught:
        average_parameters(named({"a": torch.zeros(2), "b": torch.zeros(3)}, second))
    assert words in str(caught.value)
