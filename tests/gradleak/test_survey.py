import pytest

from benchmark.errors import BenchmarkError
from gradleak import families, survey


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(families, "FILE", tmp_path / "victims.json")


@pytest.fixture
def small(monkeypatch):
    """Let timm make every model small."""
    import timm

    make, sizes = timm.create_model, {"img_size": 32, "patch_size": 8, "embed_dim": 192, "depth": 2}
    monkeypatch.setattr(timm, "create_model", lambda name, **given: make(name, **sizes, **given))


def test_model_is_measured_once_and_kept(kept, small, monkeypatch):
    (found,) = survey.survey(["vit_tiny_patch16_224"], trials=2)
    assert min(found.scores["position_closed_form"]) > 60
    assert min(found.scores["span_closed_form"]) > 40
    assert families.read() == {found.name: found}
    monkeypatch.setattr(survey, "FAMILIES", ("vit_tiny_patch16_224",))
    monkeypatch.setattr(survey, "measure", None)
    assert list(survey.survey([], trials=2)) == [found]


def test_page_tells_scores_and_why_a_model_declines(kept):
    place = {"commit": None}
    scores = {"position_closed_form": [90.0, 100.0, 95.0]}
    read = families.Surveyed(
        name="vit", patches=4, prefix=1, width=192, pixels=192, scores=scores, provenance=place
    )
    other = families.Surveyed(name="cnn", declined="begins with a convolution", provenance=place)
    page = families.page([read, other])
    assert "the median of 3 images" in page
    assert "| `vit`" in page
    assert "95.0 [90, 100]" in page.replace("\u00a0", " ")
    assert "begins with a convolution" in page
    assert families.rows([read, other])[1][0][:3] == ["vit", "95", "-"]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (
            {"patches": 196, "width": 192, "pixels": 768},
            "positions: 196 patches, width 192; span: 0 equations for 196 unknowns",
        ),
        ({"patches": 4, "width": 7, "pixels": 9}, "span: 3 equations for 4 unknowns of a patch"),
        (
            {"patches": 4, "width": 9, "pixels": 8, "layer_scale": 1e-5},
            "rounding of float32, LayerScale of 1e-05",
        ),
    ],
)
def test_limit_is_told_by_shapes(shape, said):
    assert said in families.Surveyed(name="vit", provenance={}, **shape).limit()


def test_unknown_model_ends_in_one_line(kept):
    with pytest.raises(BenchmarkError, match="timm has no model 'vit_of_nobody'"):
        list(survey.survey(["vit_of_nobody"], trials=1))


def test_committed_survey_has_every_family_at_ten_images():
    found = families.read()
    assert set(survey.FAMILIES) <= found.keys()
    for each in found.values():
        assert each.declined or {len(told) for told in each.scores.values()} == {survey.TRIALS}
