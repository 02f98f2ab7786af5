#!/usr/bin/env bash
# gensim's build_vocab(update=True) gives the trained nodes of a hierarchical softmax to other
# words.
#
# Expected: "If true, the new words in `sentences` will be added to model's vocab": the model
#   predicts the old words as before, and the new ones like words that it has not learned.
# Seen (gensim 4.4.0): the Huffman tree is built anew from all counts, so that the path of every
#   old word changes, while the weights of the nodes stay where they are. Before any further
#   training, the log-probability of old sentences falls from -175 to about -387; without any
#   training it is -257. Word vectors stay, and nothing warns. With negative sampling, each word
#   has a row of its own in the output layer, which stays its own.
# Why it matters: hs=1 is for rare words, and the only setting for which score() gives
#   probabilities of texts. What the output layer has learned is lost when words of a new domain
#   are added; further training moves vectors, by gradients of wrong nodes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq gensim==4.4.0
"$folder/venv/bin/python" - <<'PYTHON'
import random
import sys

import gensim

random.seed(0)
topics = [[f"topic{t}word{i}" for i in range(30)] for t in range(5)]


def sentences(number, topics):
    return [random.choices(random.choice(topics), k=8) for _ in range(number)]


old, heldout = sentences(2000, topics), sentences(200, topics)
new = sentences(300, [topics[0] + [f"new{i}" for i in range(10)]])


def built(epochs):
    model = gensim.models.Word2Vec(
        vector_size=20, min_count=1, sg=1, hs=1, negative=0, workers=1, seed=1
    )
    model.build_vocab(old)
    if epochs:
        model.train(old, total_examples=len(old), epochs=epochs)
    return model


def paths(model):
    """The nodes on the path of each old word, as rows of model.syn1."""
    words = [word for topic in topics for word in topic]
    return {word: tuple(model.wv.get_vecattr(word, "point")) for word in words}


def score(model):
    return model.score(heldout, total_sentences=len(heldout)).mean()


model = built(epochs=10)
trained, before, weights, vectors = (
    score(model), paths(model), model.syn1.copy(), model.wv.vectors.copy()
)  # fmt: skip
model.build_vocab(new, update=True)
updated, after = score(model), paths(model)
size = len(vectors)
kept = (model.syn1[: len(weights)] == weights).all() and (model.wv.vectors[:size] == vectors).all()
moved = sum(before[word] != after[word] for word in before)
untrained = score(built(epochs=0))

print(f"gensim {gensim.__version__}: mean log-probability of a sentence of old words")
print(f"  without training          {untrained:8.1f}")
print(f"  trained                   {trained:8.1f}")
print(f"  and build_vocab(update)   {updated:8.1f}   expected: about {trained:.1f}")
print(f"  old words whose path through the nodes has changed: {moved} of {len(before)}")
print(f"  weights of old nodes and vectors of old words as before: {kept}")
if not (kept and moved > 100 and updated < untrained < trained):
    sys.exit("The behavior has changed.")
PYTHON
