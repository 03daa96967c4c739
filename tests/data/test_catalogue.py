import subprocess
import sys

import pytest

from benchmark.data import CATALOGUE, catalogue, entry, images
from benchmark.errors import ProtocolError


def test_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ProtocolError, match=r"'digit' is unknown; known are digits, photographs"):
        entry("digit")


def test_wrong_kind_is_answered_with_the_sets_of_that_kind():
    with pytest.raises(ProtocolError, match="'pydoc' holds text; image sets are digits"):
        catalogue.known("pydoc", "image", "test")


def test_unknown_split_is_refused():
    with pytest.raises(ProtocolError, match="no split 'val'; wanted train or test"):
        catalogue.known("digits", "image", "val")


def test_catalogue_imports_no_heavy_library():
    program = (
        "import sys, benchmark.data.catalogue; "
        "print(sorted({'torch', 'numpy', 'sklearn', 'skimage', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_every_image_set_has_a_digest_of_each_split_and_a_reader_for_each_tier():
    for name, found in CATALOGUE.items():
        assert found.name == name
        if found.kind == "image":
            copied = name in ("imagenet", "ms_celeb_1m")  # the copy decides what it holds
            assert found.digest.keys() == found.size.keys()
            assert found.digest.keys() == (set() if copied else {"train", "test"})
            assert bool(found.access) == (found.tier == ("mirror",))
            assert len(images.READERS[name]) == len(found.tier)
            assert ("hub" in found.tier) == (found.hub is not None)


def test_rows_taken_from_the_hub_are_as_many_as_the_catalogue_says():
    found = entry("cifar10")
    for split, ranges in found.hub.rows.items():
        rows = [row for part in ranges for row in part]
        assert len(set(rows)) == found.size[split]
