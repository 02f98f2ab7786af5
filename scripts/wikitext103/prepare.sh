#!/usr/bin/env bash
# usage: bash scripts/wikitext103/prepare.sh [OPTION…]
#
# Prepares WikiText-103 for fairseq-train: downloads it (190 MB), tokenizes it (default: gpt2, as Yu et al. 2022) and
# binarizes it.
#   --from WHAT     download nothing: the zip, or a folder with wiki.{train,valid,test}.tokens, or with the parquet
#                   files of Salesforce/wikitext; a text that is not the published one gets a warning
corpus=wikitext103 archive=wikitext-103-v1 usual_tokenizer=gpt2
# Zip: Hugging Face's datasets/wikitext/dataset_infos.json. Files: SHA-1 of those in the zip, by GluonNLP's
# data/corpora/wikitext.py; no SHA-256 was found in public.
zip_sha256=242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590
train_digest=b7497e2dfe77e72cfef5e3dbc61b7b53712ac211
valid_digest=c326ac59dc587676d58c422eb8a03e119582f92b
test_digest=8a5befc548865cec54ed4273cf87dbbad60d1e47
shards=(train-0000{0,1}-of-00002.parquet validation-00000-of-00001.parquet test-00000-of-00001.parquet)
. "$(dirname -- "${BASH_SOURCE[0]}")/../data/wikitext.sh"
