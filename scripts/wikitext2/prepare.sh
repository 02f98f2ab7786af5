#!/usr/bin/env bash
# usage: bash scripts/wikitext2/prepare.sh [OPTION…]
#
# Prepares WikiText-2 for fairseq-train: downloads it (4 MB), tokenizes it (default: words) and binarizes it.
#   --from WHAT     download nothing: the zip, or a folder with wiki.{train,valid,test}.tokens, or with the parquet
#                   files of Salesforce/wikitext; a text that is not the published one gets a warning
corpus=wikitext2 archive=wikitext-2-v1 usual_tokenizer=words
# Zip: Hugging Face's datasets/wikitext/dataset_infos.json. Training part: SHA-1 of GluonNLP's data/corpora/wikitext.py.
# The others: SHA-256 of the copies in pytorch/examples, of which GluonNLP's SHA-1 are too.
zip_sha256=92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c
train_digest=863f29c46ef9d167fff4940ec821195882fe29d1
valid_digest=f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8
test_digest=d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0
shards=({train,validation,test}-00000-of-00001.parquet)
. "$(dirname -- "${BASH_SOURCE[0]}")/../data/wikitext.sh"
