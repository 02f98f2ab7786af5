"""The data of a training."""
