import pytest
from PIL import Image

from benchmark.errors import ProtocolError
from benchmark.protocol import load_protocol, protocol_files

COMMIT = 40 * "0"


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    for level in range(6):
        Image.new("RGB", (8, 8), (40 * level,) * 3).save(tmp_path / f"photos/{level}.png")
    return tmp_path / "photos"


def own(tiny, **data):
    return load_protocol(str(tiny(data={"folder": "photos", "size": 8} | data)))


def test_relative_path_stands_beside_the_protocol(tiny, photos, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    frozen = own(tiny).frozen()
    assert frozen["data"]["folder"] == "photos"
    assert len(frozen["data"]["content"]) == 64


def test_digest_follows_what_the_folder_holds_and_not_where_it_lies(tiny, photos):
    first = own(tiny).digest
    moved = photos.rename(photos.with_name("moved"))
    assert own(tiny, folder="moved").digest == own(tiny, folder=str(moved)).digest == first
    Image.new("RGB", (8, 8), (1, 2, 3)).save(moved / "0.png")
    assert own(tiny, folder="moved").digest != first


def test_digest_follows_the_split(tiny, photos):
    told = {own(tiny, **split).digest for split in ({}, {"split_seed": 1}, {"public": 0.25})}
    assert len(told) == 3


def test_hub_is_told_by_its_revision_and_read_by_nobody_yet(tiny):
    stated = {"hub": "who/what", "size": 8}
    told = [load_protocol(str(tiny(data={**stated, "revision": end * 40}))) for end in "01"]
    assert told[0].digest != told[1].digest
    assert told[0].data.entry.source == "https://huggingface.co/datasets/who/what"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"size": 8}, "wanted one of name, folder and hub"),
        ({"name": "digits", "folder": "photos", "size": 8}, "wanted one of name, folder and hub"),
        ({"name": "digits", "split_seed": 1, "size": 8}, "a set has its own split"),
        ({"hub": "a/b", "size": 8}, "hub and revision stand together"),
        ({"hub": "a/b", "revision": "main", "size": 8}, "data.revision: String should match"),
        ({"folder": "photos", "columns": ["a"], "size": 8}, "columns are of a hub's data set"),
        ({"folder": "nowhere", "size": 8}, "nowhere: no such folder"),
    ],
)
def test_wrong_data_is_refused_in_one_line(tiny, photos, data, said):
    with pytest.raises(ProtocolError, match=said) as refused:
        load_protocol(str(tiny(data=data)))
    assert "\n" not in str(refused.value)


def test_no_training_stage_on_own_data(tiny, photos):
    victim = {"architecture": "april_b", "trained_on": "own data", "epochs": 1}
    data = {"folder": "photos", "size": 8}
    with pytest.raises(ProtocolError, match="trained_on is of data sets of the catalogue"):
        load_protocol(str(tiny(data=data, victim=victim)))


def test_catalogued_data_say_nothing_new_to_the_digest():
    assert load_protocol("quick_digits_b").data.content == {}
    assert "quick_digits_b" in protocol_files()
