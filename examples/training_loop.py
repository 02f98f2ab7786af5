"""Adaptive gradient gating in a training loop of your own: plain PyTorch, no fairseq, no downloads.

    python examples/training_loop.py [--updates 600] [--rare-fraction 0.2] [--text FILE]

Trains a small GRU language model twice with the same seed, with plain likelihood and with AGG, on the documentation
that is bundled with Python (the language reference and the docstrings of the standard library), or on the paragraphs of
a text of your own. This takes about a minute of processor time. Then it prints the perplexity of every tenth document,
which was held out, by frequency group, and the isotropy I(W) and mean cosine S(W) of the embeddings.
"""

import argparse
import ast
import pydoc_data.topics
import re
import sysconfig
from collections import Counter
from pathlib import Path

import torch
from torch import nn

from agg_fairseq.functional import agg_gates, gated_cross_entropy, rare_tokens
from agg_fairseq.metrics import NextTokenStatistics, frequency_groups, isotropy, mean_cosine
from agg_fairseq.modules import TokenCounter

V, D, T, B = 6000, 64, 32, 16  # vocabulary, dimension, tokens per sequence, sequences per batch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--updates", type=int, default=600, help="of 512 tokens each (default: 600)")
parser.add_argument("--rare-fraction", type=float, default=0.2, help="of the vocabulary (default: 0.2)")
parser.add_argument("--text", type=Path, help="text in UTF-8 (default: the documentation of Python)")
options = parser.parse_args()

if options.text:
    documents = options.text.read_text("utf-8").split("\n\n")
else:
    documents = list(pydoc_data.topics.topics.values())
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*.py")):
        nodes = ast.walk(ast.parse(path.read_bytes()))
        named = (node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
        documents.append("\n".join(filter(None, map(ast.get_docstring, named))))
words = [re.findall(r"\w+|[^\w\s]", document.lower()) for document in documents]
known = ["<unk>", *(word for word, _ in Counter(word for of_one in words for word in of_one).most_common(V - 1))]
index = {word: number for number, word in enumerate(known)}  # sorted by frequency, as rare_fraction expects it
encoded = [torch.tensor([index.get(word, 0) for word in of_one], dtype=torch.int64) for of_one in words]
held_out = torch.cat(encoded[::10])
train = torch.cat([document for number, document in enumerate(encoded) if number % 10])
groups = frequency_groups(torch.bincount(train, minlength=len(known)))
print(f"{len(train):,} training tokens, vocabulary of {len(known):,}, {options.updates} updates")


def train_and_measure(gated: bool) -> list[float]:
    """Trains a model; perplexity of frequent, medium, rare and all tokens, then I(W) and S(W)."""
    torch.manual_seed(0)
    embedding, rnn = nn.Embedding(len(known), D), nn.GRU(D, D, batch_first=True)
    nn.init.normal_(embedding.weight, std=D**-0.5)
    optimizer = torch.optim.Adam([*embedding.parameters(), *rnn.parameters()], lr=0.003)
    counter = TokenCounter(vocabulary=len(known), window=max(1, len(train) // (B * T)))  # of one epoch

    for update in range(options.updates):
        starts = torch.randint(len(train) - T, (B,))
        batch = torch.stack([train[start : start + T + 1] for start in starts])  # B x (T + 1)
        inputs, target = batch[:, :-1], batch[:, 1:]

        gates = None
        if gated and counter.updates:  # the first update, before anything is counted, is not gated
            rare = rare_tokens(counter.appearances, counter.updates, rare_fraction=options.rare_fraction)
            gates = agg_gates(counter.appearances, counter.updates, rare)
        features, _ = rnn(embedding(inputs))  # B x T x D
        loss = gated_cross_entropy(features, embedding.weight, target, gates=gates).loss / target.numel()

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counter.add(target)
        counter.commit()  # the update ends here: its targets enter the window
        if (update + 1) % max(1, options.updates // 3) == 0:
            print(f"{'AGG' if gated else 'MLE'}: update {update + 1}, loss {loss.item():.3f} nats")

    statistics = NextTokenStatistics(groups)
    with torch.no_grad():
        for block in held_out.split(8 * T):
            features, _ = rnn(embedding(block[:-1]))
            log_probs = (features @ embedding.weight.T).log_softmax(-1)  # N x V
            statistics.add(log_probs, block[1:])
    weight = embedding.weight.detach()
    return [
        *(value or float("nan") for value in statistics.perplexity().values()),
        isotropy(weight),
        mean_cosine(weight),
    ]


rows = {"MLE": train_and_measure(gated=False), "AGG": train_and_measure(gated=True)}
print("\n| | PPL frequent | PPL medium | PPL rare | PPL total | I(W) | S(W) |\n|:--|--:|--:|--:|--:|--:|--:|")
for name, values in rows.items():
    print(f"| {name} | {' | '.join(f'{value:,.1f}' for value in values[:4])} | {values[4]:.3f} | {values[5]:.3f} |")
