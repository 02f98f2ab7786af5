"""`--criterion mle`, `cosreg` (Gao et al. 2019) and `unlikelihood` (Welleck et al. 2020): likelihood,
without gates, and the default weight of a term."""

from dataclasses import make_dataclass

from fairseq.criterions import register_criterion

from ...functional import TERMS
from .. import option
from .base import GatedCriterion, GatedCriterionConfig

DEFAULTS = {"mle": {}, "cosreg": {"cosreg_gamma": 1.0}, "unlikelihood": {"ul_alpha": 1.0}}
"""Criterion: the weights of its terms that are not 0, those of the papers."""

for name, weights in DEFAULTS.items():
    fields = [
        (term.option, float, option(weights[term.option], term.help))
        for term in TERMS
        if term.option in weights
    ]
    names = (f"{name.capitalize()}CriterionConfig", f"{name.capitalize()}Criterion")
    config = make_dataclass(
        names[0], fields, bases=(GatedCriterionConfig,), namespace={"__module__": __name__}
    )
    criterion = type(names[1], (GatedCriterion,), {"__module__": __name__})
    register_criterion(name, dataclass=config)(criterion)
    globals().update({names[0]: config, names[1]: criterion})  # where pickle looks for them
