"""All tables and figures, by the names that the command line takes."""

from . import agg, agps, cosreg, f2

EXPERIMENTS = {**agg.EXPERIMENTS, **agps.EXPERIMENTS, **f2.EXPERIMENTS, **cosreg.EXPERIMENTS}
