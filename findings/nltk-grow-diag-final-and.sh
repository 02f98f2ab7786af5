#!/usr/bin/env bash
# NLTK's grow_diag_final_and returns the union of the two word alignments.
#
# Expected: the heuristic of Koehn et al. (2003). grow-diag adds a neighbor that is in the union if
#   one of its two words has no link yet; final-and adds other links of the union if both words
#   have none.
# Seen (nltk 3.10.4): both steps ask whether a word's position is a key of a dictionary whose keys
#   are "e" and "f". It never is, so every word counts as one without a link, and every link of the
#   union is added, in every sentence.
# Why it matters: alignments that were symmetrized by it have the precision of the union. Error
#   rates of aligners, and measures of embeddings that need aligned words (AlignSim), are those of
#   another heuristic than the one reported.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq nltk==3.10.4
"$folder/venv/bin/python" - <<'PYTHON'
import random
import sys
from collections import Counter

import nltk
from nltk.translate import grow_diag_final_and

NEIGHBORS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def symmetrize(forward, backward):
    """The links of grow-diag-final-and, as Koehn et al. define it."""
    links, union = forward & backward, forward | backward

    def without_link(i, j):
        return [all(i != source for source, _ in links), all(j != target for _, target in links)]

    before = -1
    while before < len(links):
        before = len(links)
        for i, j in sorted(links):
            for di, dj in NEIGHBORS:
                point = i + di, j + dj
                if point in union and any(without_link(*point)):
                    links.add(point)
    for point in sorted(forward) + sorted(backward):
        if all(without_link(*point)):
            links.add(point)
    return links


def pharaoh(links):
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


random.seed(1)
words, right, total, unlike = 20, Counter(), Counter(), 0
for _ in range(
    1000
):  # word i translates word i; about a tenth of the links of each direction are wrong
    forward = {(i, i if random.random() < 0.9 else random.randrange(words)) for i in range(words)}
    backward = {(i if random.random() < 0.9 else random.randrange(words), i) for i in range(words)}
    found = {
        "expected": symmetrize(forward, backward),
        "NLTK": set(grow_diag_final_and(words, words, pharaoh(forward), pharaoh(backward))),
        "union": forward | backward,
    }
    unlike += found["NLTK"] != found["union"]
    for name, links in found.items():
        total[name] += len(links)
        right[name] += sum(i == j for i, j in links)

print(f"nltk {nltk.__version__}, grow_diag_final_and of 1,000 sentences")
for name in total:
    print(f"  {name:9} {total[name]:,} links, {right[name] / total[name]:.1%} of them right")
print(f"  expected: the links of the first row; seen: the union, in all but {unlike} sentences")
if unlike or total["expected"] == total["NLTK"]:
    sys.exit("The behavior has changed.")
PYTHON
