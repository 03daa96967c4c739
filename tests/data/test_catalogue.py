import subprocess
import sys

import pytest

from benchmark.data import CATALOGUE, catalogue, entry, images
from benchmark.errors import ProtocolError

MNIST = (catalogue.SETS / "mnist.yaml").read_text()


def test_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ProtocolError, match=r"no data set 'digit'; did you mean digits"):
        entry("digit")


def test_wrong_kind_is_answered_with_the_sets_of_that_kind():
    with pytest.raises(ProtocolError, match="'pydoc' holds text; image sets are cifar10, digits"):
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


def test_a_set_is_read_when_it_is_first_asked_for(tmp_path):
    (tmp_path / "mnist.yaml").write_text(MNIST)
    (tmp_path / "torn.yaml").write_text("name: [torn\n")
    sets = catalogue.Catalogue(tmp_path)
    assert list(sets) == ["mnist", "torn"]
    assert sets["mnist"] == CATALOGUE["mnist"]
    with pytest.raises(ProtocolError, match=r"torn\.yaml:2: malformed YAML"):
        sets["torn"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("licence: ", "license: ", "the key 'licence' is missing"),
        ("tier: [mirror", "tier: [attic", "tier.0: Input should be 'embedded', 'mirror' or 'hub'"),
        ("  columns: ", "  pillars: ", "the key 'hub.columns' is missing"),
        ("  columns:", "  rows: {test: [[9]]}\n  columns:", "wanted [first row, row after"),
        ("licence: ", "colour: grey\nlicence: ", "unknown key 'colour'"),
        ("  test: a0", "  test: x0", "digest.test: String should match pattern"),
        ("name: mnist", "name: minst", "name 'minst' is not the file's own"),
    ],
)
def test_wrong_entry_is_refused_with_file_and_line(tmp_path, old, new, said):
    path = tmp_path / "mnist.yaml"
    path.write_text(MNIST.replace(old, new, 1))
    assert path.read_text() != MNIST
    with pytest.raises(ProtocolError) as refused:
        catalogue.Catalogue(tmp_path)["mnist"]
    assert said in str(refused.value)
    assert str(refused.value).startswith(f"{path}:")
    assert "\n" not in str(refused.value)
