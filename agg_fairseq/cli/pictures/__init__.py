"""The pictures of `agg-fairseq plot`, one per module: its options, and how it is drawn."""
