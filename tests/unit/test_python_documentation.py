from scripts.data.python_documentation import paragraphs, split


def test_paragraphs_are_those_that_are_no_code():
    text = "The *first* paragraph of\n``text`` here.\n\n>>> an + example of\n\n   if code is here:\n\nToo short\n"
    assert paragraphs(text) == ["The first paragraph of text here."]


def test_a_document_is_in_one_split_and_nothing_is_there_twice():
    """Of every 20 documents, the first is for validation and the second for testing."""
    documents = ([f"paragraph {number}", "the same in all"] for number in range(41))
    splits = split(documents)
    assert splits["valid"] == ["paragraph 0", "the same in all", "paragraph 20", "paragraph 40"]
    assert splits["test"] == ["paragraph 1", "paragraph 21"] and len(splits["train"]) == 36
