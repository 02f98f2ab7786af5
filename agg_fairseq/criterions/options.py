"""The options of every criterion."""

from dataclasses import dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from ..fairseq_glue.registries import option


@dataclass
class CriterionConfig(FairseqDataclass):
    """Options of every criterion of this package. A weight of 0 leaves its term out, also of the log."""

    cosreg_gamma: float = option(0.0, "weight of the mean cosine between output embeddings (Gao et al. 2019: 1.0)")
    label_smoothing: float = option(0.0, "epsilon of label smoothing in [0, 1), as in label_smoothed_cross_entropy")
    embedding_stats_interval: int = option(
        0,
        "interval, in updates, of logging the statistics of the output embedding: isotropy I(W), mean_cosine S(W), "
        "both of W minus its mean row (…_centered), mean_share and isoscore; 0: only at validation, where they are "
        "always logged",
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    train_subset: str = II("dataset.train_subset")
    update_ordered_indices_seed: bool = II("dataset.update_ordered_indices_seed")
    ddp_backend: str = II("distributed_training.ddp_backend")


@dataclass
class LikelihoodCriterionConfig(CriterionConfig):
    """Options of every criterion that works on one softmax over all tokens."""

    ul_alpha: float = option(
        0.0, "weight of the unlikelihood of tokens seen earlier in their sequence (Welleck et al. 2020: 1.0)"
    )
    adv_epsilon: float = option(
        0.0,
        "adversarial training: lower the logit of the target by this share of the product of the norms of its "
        "embedding and of the features (Wang et al. 2019: 0.005, in their fine-tuning 0.028)",
    )


def check_at_least(least: int, cfg: Any, name: str, expected: str) -> None:
    """Raises ValueError if an option is below `least`; `expected` says what it is to be."""
    if getattr(cfg, name) < least:
        raise ValueError(f"--{name.replace('_', '-')}: expected {expected}, got {getattr(cfg, name)}")
