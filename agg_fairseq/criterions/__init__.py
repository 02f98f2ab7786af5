"""fairseq criterions. Importing this package registers them."""

from .agg import AggCriterion, AggCriterionConfig
from .mle import MleCriterion, MleCriterionConfig

__all__ = ["AggCriterion", "AggCriterionConfig", "MleCriterion", "MleCriterionConfig"]
