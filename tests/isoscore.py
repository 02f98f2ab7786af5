"""IsoScore to the letter of its paper."""

import numpy as np


def algorithm_1(points):
    """IsoScore of points (V, D), step by step as Rudman et al. (2022) have it in Algorithm 1."""
    x = np.asarray(points, dtype=np.float64)
    n = x.shape[1]
    axes = np.linalg.eigh(np.cov(x, rowvar=False))[1]  # 2: principal component analysis
    variances = np.diag(np.cov((x - x.mean(0)) @ axes, rowvar=False))  # 3: the diagonal of the covariance
    normalized = np.sqrt(n) * variances / np.linalg.norm(variances)  # 4
    defect = np.linalg.norm(normalized - np.ones(n)) / np.sqrt(2 * (n - np.sqrt(n)))  # 5
    phi = (n - defect**2 * (n - np.sqrt(n))) ** 2 / n**2  # 6
    return (n * phi - 1) / (n - 1)  # 7
