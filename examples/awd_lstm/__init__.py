"""AWD-LSTM (Merity, Keskar & Socher 2018), the language model of Gao et al. (2019), as a plug-in
over agg_fairseq.

`fairseq-train --user-dir examples/awd_lstm` imports this folder as `awd_lstm`, and with it all that
agg_fairseq registers.
"""

import agg_fairseq

from . import model, nt_asgd, task  # noqa: F401 — importing registers

agg_fairseq.register()
