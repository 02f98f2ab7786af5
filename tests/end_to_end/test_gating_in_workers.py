"""Rules for gates under DDP: what belongs to a worker stays its own until counts are summed;
integrations/sharding.py has the other ways to share the work."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from agg_fairseq.functional import TrainingLoss
from agg_fairseq.gating import AggGating, FaceWeights
from tests.processes import run_processes

pytestmark = pytest.mark.slow

V, D = 30, 8


class Model(nn.Module):
    """A model with a rule inside of it."""

    def __init__(self, rule):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(V, D)
        self.head, self.rule = nn.Linear(D, V, bias=False), rule

    def forward(self, tokens):
        features = self.embedding(tokens[:, :-1])
        target = tokens[:, 1:]
        if isinstance(self.rule, AggGating):
            return TrainingLoss()(features, self.head.weight, target, gates=self.rule(target)).loss
        weights = self.rule(target)
        self.rule.count(self.head(features).argmax(-1), target)
        return TrainingLoss()(features, self.head.weight, target, position_weight=weights).loss


def draw_tokens(rank, micro_batch):
    generator = torch.Generator().manual_seed(10 * rank + micro_batch)
    return torch.randint(V, (2, 6), generator=generator)


def work(folder):
    rank, found = dist.get_rank(), {}
    # Three forward passes before the backward passes: DDP gives each the buffers of the first.
    for name, rule in (("agg", AggGating(V, rare_fraction=0.3)), ("face", FaceWeights(V))):
        model = nn.parallel.DistributedDataParallel(Model(rule))
        losses = [model(draw_tokens(rank, number)) for number in range(3)]
        found[name] = rule.counter.current.clone()
        sum(losses).backward()
        rule.commit_update()
        found[f"{name}, summed"] = rule.counter.appearances.clone()
    torch.save(found, folder / f"{rank}.pt")


def counts(*batches):
    return torch.cat([batch[:, 1:].flatten() for batch in batches]).bincount(minlength=V)


def test_counts_of_two_workers(tmp_path):
    run_processes(work, 2, tmp_path, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    batches = [[draw_tokens(rank, number) for number in range(3)] for rank in range(2)]
    assert first["agg"].equal(counts(*batches[0])) and second["agg"].equal(counts(*batches[1]))
    assert not first["face"].equal(second["face"])
    for found in (first, second):
        assert found["agg, summed"].equal(counts(*batches[0], *batches[1]))
        assert found["face, summed"].equal(first["face"] + second["face"])
