import pytest

from benchmark.errors import ProtocolError
from benchmark.victims import ImageSpec, TextSpec, operations


def images(architecture, size=28, **settings):
    grey = {"channels": 1, "classes": 10, "mean": (0.4,), "std": (0.25,)}
    return ImageSpec(architecture=architecture, size=size, **grey, **settings)


def test_transformer_of_images_is_counted_by_its_matrix_products():
    width, depth, patches = 32, 2, 16
    blocks = depth * (12 * width**2 * (patches + 1) + 2 * width * (patches + 1) ** 2)
    wanted = 2 * (patches * 49 * width + blocks + width * 10)
    assert operations(images("april_b", width=width, depth=depth)) == wanted


@pytest.mark.parametrize(("name", "mlp"), [("transformer3", 40), ("gpt2", 64), ("bert_base", 64)])
def test_language_model_is_counted_by_its_matrix_products(name, mlp):
    sizes = {"width": 16, "depth": 2, "heads": 2, "mlp": mlp}
    spec = TextSpec(architecture=name, vocabulary=60, length=12, **sizes)
    token = 2 * (4 * 16**2 + 2 * mlp * 16) + 60 * 16
    token += 16**2 if name == "bert_base" else 0  # the head's transform
    assert operations(spec, 5) == 2 * (5 * token + 2 * 2 * 16 * 5**2)


def test_trained_weights_are_counted_without_their_file():
    names = {"architecture": "bert_base", "vocabulary": 60, "length": 8, "width": None}
    assert operations(TextSpec(**names, weights="pretrained")) == operations(TextSpec(**names))


def test_network_that_does_not_exist_is_not_counted():
    with pytest.raises(ProtocolError, match="no victim 'april_c'"):
        operations(images("april_c"))
    with pytest.raises(ProtocolError, match="timm has no model"):
        operations(images("timm/nonesuch"))
