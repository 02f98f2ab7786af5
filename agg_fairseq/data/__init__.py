"""The data of a training: binarized splits and their counts, vocabularies, sub-words, word
alignments."""
