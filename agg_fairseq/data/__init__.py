"""What a model is trained on: binarized splits and their counts, vocabularies, sub-words, word
alignments."""
