"""The folder for fairseq's `--user-dir`, which imports it by its name once: all of agg_fairseq is
then registered.

It lies in a folder of its own because fairseq puts that on Python's path.
"""

import agg_fairseq

agg_fairseq.register()
