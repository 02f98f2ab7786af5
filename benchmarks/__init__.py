"""Benchmarks: time and memory compared with the alternatives a user has. Ratios are within one
run."""
