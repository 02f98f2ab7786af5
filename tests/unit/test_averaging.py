import pytest
import torch
from torch import nn

from agg_fairseq.checkpoints.averaging import average_parameters
from agg_fairseq.errors import UserError
from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.modules import UnigramLinear


def named(*models):
    return {f"{index}.pt": model for index, model in enumerate(models)}


@pytest.mark.parametrize(
    ("values", "dtype", "mean"),
    [
        ((2048.0, 1.0, 1.0), torch.float16, 683.5),  # of 683.33; 2048 + 1 would be 2048
        ((60000.0, 60000.0), torch.float16, 60000),  # the sum would be infinite
        ((2.0**24, 1.0, 1.0, 2.0), torch.float32, 2**22 + 1),  # 2^24 + 1 would be 2^24
        ((256.0, 1.0, 1.0), torch.bfloat16, 86),
    ],
)
def test_sums_where_the_dtype_would_not(values, dtype, mean):
    weights = torch.tensor(values, dtype=dtype)
    models = named(*({"w": weight} for weight in weights))
    assert average_parameters(models)["w"].item() == mean
    assert weights.tolist() == list(values)


FIXED = {
    "class_of_token": lambda last: FactorizedSoftmax(3, torch.tensor([0, 1, 1 - last, last])),
    "counts": lambda last: UnigramLinear(
        nn.Parameter(torch.zeros(3, 2)), torch.tensor([4, 2, last])
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_classes_and_counts_must_be_the_same(name):
    first, second = (nn.ModuleDict({"out": FIXED[name](last)}).state_dict() for last in (0, 1))
    averaged = average_parameters(named(first, first))
    assert torch.equal(averaged[f"out.{name}"], first[f"out.{name}"])
    with pytest.raises(UserError, match=f"1.pt: found another out.{name} than in 0.pt"):
        average_parameters(named(first, second))


def test_integers_must_be_the_same():
    models = named({"w": torch.tensor([1, 0])}, {"w": torch.tensor([1, 1])})
    with pytest.raises(UserError, match="1.pt: found another w than in 0.pt"):
        average_parameters(models)


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({"a": torch.zeros(2)}, r"b \(3,\)"),
        ({"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1)}, r"c \(1,\)"),
        ({"a": torch.zeros(2), "b": torch.zeros(1)}, r"b \(1,\)"),
    ],
)
def test_models_that_are_not_alike(other, found):
    models = named({"a": torch.zeros(2), "b": torch.zeros(3)}, other)
    message = f"1.pt: found other parameters than in 0.pt, such as {found}"
    with pytest.raises(UserError, match=message):
        average_parameters(models)
