import pytest
import torch
from torch import nn
from torch.testing import assert_close

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


def state(layer):
    return nn.ModuleDict({"out": layer}).state_dict()


def classes(last):
    return state(FactorizedSoftmax(3, torch.tensor([0, 1, 1 - last, last])))


def counts(last):
    return state(UnigramLinear(nn.Parameter(torch.zeros(3, 2)), torch.tensor([4, 2, last])))


A, B, C = (torch.zeros(size) for size in (2, 3, 1))


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (classes(0), classes(1), "another out.class_of_token than in 0.pt"),
        (counts(0), counts(1), "another out.counts than in 0.pt"),
        ({"w": torch.tensor([1, 0])}, {"w": torch.tensor([1, 1])}, "another w than in 0.pt"),
        ({"a": A, "b": B}, {"a": A}, r"other parameters than in 0.pt, such as b \(3,\)"),
        ({"a": A}, {"a": A, "c": C}, r"other parameters than in 0.pt, such as c \(1,\)"),
        ({"a": A, "b": B}, {"a": A, "b": C}, r"other parameters than in 0.pt, such as b \(1,\)"),
    ],
)
def test_models_that_are_not_alike(first, second, found):
    assert_close(average_parameters(named(first, first)), dict(first), rtol=0, atol=0)
    with pytest.raises(UserError, match=f"1.pt: found {found}"):
        average_parameters(named(first, second))
