import pytest

from tests.reproducing import Clone


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    return Clone(tmp_path_factory.mktemp("clone"))
