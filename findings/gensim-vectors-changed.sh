#!/usr/bin/env bash
# gensim ranks neighbors by the lengths that vectors had before they were centered, if it was asked
# once before.
#
# Expected: after `kv.vectors -= kv.vectors.mean(0)` (Mu and Viswanath 2018), most_similar finds
#   the words with the largest cosines, those that similarity() returns.
# Seen (gensim 4.4.0): most_similar and evaluate_word_analogies divide by lengths that were kept
#   when one of them was first called, also if `kv.vectors` is assigned anew. similarity() computes
#   lengths each time, so the two disagree about a pair of words. Nothing warns; the remedy is
#   kv.fill_norms(force=True).
# Why it matters: whoever compares embeddings before and after centering, whitening or removing
#   principal components asks before, and then gets wrong neighbors and analogies after.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq gensim==4.4.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import gensim
import numpy as np

rng = np.random.default_rng(0)
words, size = 2000, 50
lengths = rng.lognormal(sigma=0.5, size=(words, 1))
# Words differ in length and share a direction, as in trained models.
rows = (lengths * (rng.normal(size=(words, size)) + 1)).astype("float32")
names = [f"word{i}" for i in range(words)]


def center(asked_before):
    vectors = gensim.models.KeyedVectors(size)
    vectors.add_vectors(names, rows.copy())
    if asked_before:
        vectors.most_similar("word0")
    vectors.vectors -= vectors.vectors.mean(0)
    return vectors


def neighbors(vectors, name):
    return {word for word, _ in vectors.most_similar(name)}


asked, fresh = center(asked_before=True), center(asked_before=False)
shared = np.mean(
    [len(neighbors(asked, name) & neighbors(fresh, name)) / 10 for name in names[:200]]
)
neighbor, score = asked.most_similar("word0", topn=1)[0]
cosine = asked.similarity("word0", neighbor).item()
asked.fill_norms(force=True)
cured = all(neighbors(asked, name) == neighbors(fresh, name) for name in names[:20])
print(f"gensim {gensim.__version__}: vectors were centered after one call of most_similar")
print(
    f"  {shared:.0%} of the 10 nearest neighbors are those that are found without this first call (expected: 100%)"
)
print(
    f"  most_similar gives {score:.3f} to a pair whose similarity() is {cosine:.3f} (expected: equal)"
)
if shared > 0.9 or abs(score - cosine) < 0.01 or not cured:
    sys.exit("The behavior has changed.")
PYTHON
