"""The `agg-fairseq` command."""
