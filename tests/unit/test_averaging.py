import pytest
import torch
from torch import nn

from agg_fairseq.checkpoints.averaging import average_parameters
from agg_fairseq.errors import UserError
from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.modules import UnigramLinear


def named(*models):
    return {f"{index}.pt": model for index, model in enumerate(models)}


def models_of(*values, dtype=torch.float32):
    return named(*({"w": torch.tensor(value, dtype=dtype)} for value in values))


def test_sums_where_the_dtype_would_not():
    """2048 + 1 is 2048 in float16, and 60000 + 60000 infinite; 2^24 + 1 is 2^24 in float32. The
    inputs stay."""
    models = models_of(2048.0, 1.0, 1.0, dtype=torch.float16)
    assert average_parameters(models)["w"].item() == 683.5  # of 683.33
    assert [model["w"].item() for model in models.values()] == [2048, 1, 1]
    assert average_parameters(models_of(60000.0, 60000.0, dtype=torch.float16))["w"].item() == 60000
    assert average_parameters(models_of(2.0**24, 1.0, 1.0, 2.0))["w"].item() == 2**22 + 1
    assert average_parameters(models_of(256.0, 1.0, 1.0, dtype=torch.bfloat16))["w"].item() == 86


def tied(number):
    weight = torch.full((4, 2), float(number))
    return {"in": weight, "out": weight, "bias": torch.zeros(2)}


def test_tied_parameters_stay_tied():
    """Not those that only some of the models tie, nor views of one memory at different places."""
    averaged = average_parameters(named(tied(1), tied(3)))
    assert averaged["in"] is averaged["out"] and averaged["in"].unique().tolist() == [2]
    averaged = average_parameters(named(tied(1), {**tied(3), "out": torch.full((4, 2), 5.0)}))
    assert averaged["in"].unique().tolist() == [2] and averaged["out"].unique().tolist() == [3]
    memory = torch.arange(6.0)
    views = {
        "a": memory[:3],
        "b": memory[3:],
        "c": memory.view(2, 3)[0],
        "t": memory.view(2, 3).t()[:1],
    }
    averaged = average_parameters(named(views, views))
    assert all(torch.equal(averaged[name], value) for name, value in views.items())


def test_what_is_no_weight_must_be_the_same():
    """Classes, also of a layer within a model; counts of a log-unigram bias; and what is no
    floating-point number."""
    layers = [
        FactorizedSoftmax(3, torch.tensor(classes)) for classes in ([0, 1, 1, 2], [1, 0, 1, 2])
    ]
    weight = nn.Parameter(torch.zeros(3, 2))
    biases = [UnigramLinear(weight, torch.tensor(counts)) for counts in ([4, 2, 0], [4, 2, 1])]
    for modules, name in ((layers, "class_of_token"), (biases, "counts")):
        states = [nn.ModuleDict({"out": module}).state_dict() for module in modules]
        assert torch.equal(
            average_parameters(named(states[0], states[0]))[f"out.{name}"], states[0][f"out.{name}"]
        )
        with pytest.raises(UserError, match=f"1.pt: found another out.{name} than in 0.pt"):
            average_parameters(named(*states))
    for dtype in (torch.int64, torch.bool):
        assert average_parameters(models_of([1, 0], [1, 0], dtype=dtype))["w"].dtype == dtype
        with pytest.raises(UserError, match="2.pt: found another w than in 0.pt"):
            average_parameters(models_of([1, 0], [1, 0], [1, 1], dtype=dtype))


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ({"a": torch.zeros(2)}, r"b \(3,\)"),
        ({"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1)}, r"c \(1,\)"),
        ({"a": torch.zeros(2), "b": torch.zeros(1)}, r"b \(1,\)"),
    ],
)
def test_models_that_are_not_alike(second, found):
    with pytest.raises(
        UserError, match=f"1.pt: found other parameters than in 0.pt, such as {found}"
    ):
        average_parameters(named({"a": torch.zeros(2), "b": torch.zeros(3)}, second))
