"""Options of the command line, as hydra reads them."""

import itertools

from hydra.core.override_parser.overrides_parser import OverridesParser

from scripts.training.configuration import quoted


def test_any_text_can_be_quoted():
    """Backslashes, quotation marks, commas and spaces in every order, read by hydra's own parser."""
    parser = OverridesParser.create()
    for length in range(5):
        for characters in itertools.product("a\\', ", repeat=length):
            text = "".join(characters)
            assert parser.parse_override(f"key={quoted(text)}").value() == text
