#!/usr/bin/env bash
# fairseq's exponential moving average decays a shared embedding once for each of its names.
#
# Expected: with --store-ema and --ema-decay d, each average becomes d · average + (1 − d) ·
#   parameter in an update. The help of --ema-decay says "decay for exponential moving average
#   model", and --share-all-embeddings makes one matrix of three.
# Seen (ve-fairseq 0.12.3, torch 2.13.0): the average is updated in place for each name in
#   state_dict(), and a matrix shared by encoder, decoder and output layer has three names: its
#   decay is d³. With --share-decoder-input-output-embed it is d². So it is for models in float32,
#   with and without --ema-fp32; in float16 with --ema-fp32, the decay is d.
# Why it matters: with a decay of 0.999, the embedding is averaged over 333 updates, and every
#   other parameter over 1,000. The averaged model joins an embedding to layers of another time,
#   and the same training in float32 and in float16 has two averages. Nothing warns.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 numpy==1.26.4 ve-fairseq==0.12.3
# stderr is dropped as far as it is DEBUG and INFO messages of the import
"$folder/venv/bin/python" -W ignore - 2> >(grep -v "^DEBUG\|^INFO" >&2) <<'PYTHON'
import math
import sys
from argparse import Namespace
from importlib.metadata import version

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema import build_ema
from fairseq.models.transformer import TransformerModel, base_architecture

DECAY, UPDATES = 0.99, 20
dictionary = Dictionary()
for word in "abcdefgh":
    dictionary.add_symbol(word)


def model_with(**sharing):
    torch.manual_seed(0)
    args = Namespace(encoder_layers=1, decoder_layers=1, encoder_embed_dim=8, **sharing)
    args.encoder_ffn_embed_dim, args.encoder_attention_heads, args.decoder_attention_heads = 8, 1, 1
    base_architecture(args)
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return TransformerModel.build_model(args, task)


def decay(model, name, ema_fp32):
    """The decay per update by which the average of a parameter approaches the parameter."""
    config = EMAConfig(store_ema=True, ema_decay=DECAY, ema_fp32=ema_fp32)
    parameter = model.get_parameter(name)
    torch.nn.init.zeros_(parameter)
    average = build_ema(model, config, torch.device("cpu"))
    torch.nn.init.ones_(parameter)
    for update in range(UPDATES):
        average.step(model, update)
    entry = average.get_model().get_parameter(name).flatten()[0].item()
    return (1 - entry) ** (1 / UPDATES)


cases = {
    "not shared": ({}, 1),
    "--share-decoder-input-output-embed": ({"share_decoder_input_output_embed": True}, 2),
    "--share-all-embeddings": ({"share_all_embeddings": True}, 3),
}
layer, embedding = "decoder.layers.0.fc1.weight", "decoder.embed_tokens.weight"
print(f"ve-fairseq {version('ve-fairseq')}, torch {torch.__version__}: --ema-decay {DECAY}")
print("                                       a layer    decoder.embed_tokens:")
print("                                                  float32   float32       float16")
print("                                                            --ema-fp32    --ema-fp32")
changed = False
for name, (sharing, names) in cases.items():
    found = [
        decay(model_with(**sharing), layer, False),
        decay(model_with(**sharing), embedding, False),
        decay(model_with(**sharing), embedding, True),
        decay(model_with(**sharing).half(), embedding, True),
    ]
    print("  {:36} {:.4f}     {:.4f}    {:.4f}        {:.4f}".format(name, *found))
    seen = [DECAY, DECAY**names, DECAY**names, DECAY]
    changed |= not all(math.isclose(a, b, abs_tol=5e-4) for a, b in zip(found, seen))
print(f"  expected: {DECAY} everywhere")
if changed:
    sys.exit("The behavior has changed.")
PYTHON
