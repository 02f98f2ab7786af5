"""Shows how much of a text is rare, before anything is trained.

A row per frequency group: its number of types, the fewest and the most occurrences of a type in the
training text, and its share of the targets of each split; `rarest …` are the types that
`--criterion agg --agg-rare-fraction F` treats as rare.

With --tokens-per-update, a column says after how many updates N a token of the group returns on
average, a line has the window K = 2N and the α for AGG, and further rows have what Adam forgets
with a β₂: tokens of 4 occurrences or more that return more rarely than the half-life of its second
moment. Their share of the targets is s. The last column predicts how much the perplexity changes
with 0.999 instead (docs/rule.md); with --beta2, a line also has what was measured with such an s.

Tokens are counted in the whole training split, also in sentences that fairseq-train would skip; the
log of a training has their number.

    agg-fairseq groups data-bin/wikitext-2 --tokens-per-update 1024 --beta2 0.98
    agg-fairseq groups train.txt --tokenizer models/gpt2 --tokens-per-update 500000 --beta2 0.95 --epochs 3

Reference: Yu et al. (2022), Sec. 3.1; Yu et al. (2021), Sec. 2.1.
"""

from .options import calling

add_arguments, run = calling("evaluation.group_shares", "group_shares")
