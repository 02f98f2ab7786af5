"""The parts of `agg-fairseq report`: runs, settings, sections, the page."""
