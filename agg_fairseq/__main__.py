"""`python -m agg_fairseq` is `agg-fairseq`."""

import sys

from .cli.main import main

sys.exit(main())
