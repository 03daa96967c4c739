import pytest
import torch

from benchmark.data import ImageSet, TokenSet
from benchmark.data.lazy import LazyImages
from benchmark.errors import DataUnavailable, ProtocolError
from benchmark.federation import draw_images, draw_text
from benchmark.protocol import load_protocol

SIZES = {"trials": 2, "users": 2, "batch_size": 3, "length": 4}


@pytest.fixture
def data():
    """Users whose tokens say whose they are; every third has too few for a batch."""
    users = {str(i): torch.arange(i * 100, i * 100 + (5 if i % 3 == 0 else 20)) for i in range(9)}
    return TokenSet("here", "test", users, "people")


def test_batch_is_the_beginning_of_its_users_texts_and_no_user_is_in_two(data):
    batches = draw_text("p", data, 0, **SIZES)
    assert [batch.tokens.shape for batch in batches] == [(6, 4)] * 2
    starts = [batch.tokens.view(2, 12)[:, 0].tolist() for batch in batches]
    assert len({start for pair in starts for start in pair}) == 4
    for batch in batches:
        for row in batch.tokens.view(2, 12):
            assert torch.equal(row, row[0] + torch.arange(12))
            assert row[0] % 100 == 0
        assert batch.masked is None


def test_users_with_too_little_text_are_never_drawn(data):
    drawn = {
        int(b.tokens[0, 0]) // 100
        for seed in range(30)
        for b in draw_text("p", data, seed, **SIZES)
    }
    assert drawn <= {1, 2, 4, 5, 7, 8}


def test_fewer_trials_are_the_first_of_more(data):
    few, many = (draw_text("p", data, 0, **SIZES | {"trials": n, "users": 1}) for n in (2, 5))
    assert torch.equal(few[1].tokens, many[1].tokens)


def test_more_users_than_have_text_are_refused(data):
    with pytest.raises(
        ProtocolError, match="p: 4 trials of 2 users with 12 tokens wanted, here has 6"
    ):
        draw_text("p", data, 0, **SIZES | {"trials": 4})


def test_masked_places_are_a_share_and_at_least_one_a_sequence():
    users = {str(i): torch.zeros(4000, dtype=torch.int64) for i in range(2)}
    many = TokenSet("many", "test", users, "people")
    sizes = {"trials": 2, "users": 1, "batch_size": 1000, "length": 4}
    first, second = draw_text("p", many, 0, **sizes, masked=True)
    share = first.masked.float().mean()
    assert first.masked.any(dim=1).all()
    # each of four places with 0.15, and one for certain: 1 - E[no other], about 0.28
    assert 0.25 < share < 0.35
    assert not torch.equal(first.masked, second.masked)


@pytest.fixture
def images():
    """Sixty images of five classes; each pixel is its image's number."""

    def make(name="here", made=None):
        def pixels(rows):
            if made is not None:
                made.append(len(rows))
            return torch.from_numpy(rows).float().view(-1, 1, 1, 1)

        labels = torch.arange(60) % 5
        return ImageSet(name, "test", LazyImages(pixels, (60, 1, 1, 1)), labels, tuple("abcde"))

    return make


def test_no_class_has_more_images_than_the_protocol_says(images):
    batches = draw_images("p", images(), 0, trials=10, batch_size=2, per_class=4)
    labels = torch.cat([batch.labels for batch in batches])
    assert labels.bincount().tolist() == [4] * 5
    drawn = torch.cat([batch.images for batch in batches]).flatten().long()
    assert len(drawn.unique()) == 20
    assert torch.equal(drawn % 5, labels)


def test_a_limit_no_class_reaches_changes_no_draw(images):
    free, limited = (
        draw_images("p", images(), 0, trials=3, batch_size=2, per_class=most) for most in (None, 12)
    )
    assert [b.images.tolist() for b in free] == [b.images.tolist() for b in limited]


def test_fewer_trials_of_one_image_a_class_are_the_first_of_more(images):
    few, many = (draw_images("p", images(), 0, trials=n, batch_size=1, per_class=1) for n in (2, 5))
    assert [b.images.item() for b in few] == [b.images.item() for b in many][:2]


def test_limit_holds_where_the_labels_of_a_batch_are_distinct_too(images):
    sizes = {"batch_size": 5, "distinct_labels": True}
    batches = draw_images("p", images(), 0, trials=2, per_class=2, **sizes)
    assert all(len(batch.labels.unique()) == 5 for batch in batches)
    with pytest.raises(ProtocolError, match="distinct labels, at most 2 a class, wanted, here has"):
        draw_images("p", images(), 0, trials=3, per_class=2, **sizes)


def test_limit_that_leaves_too_few_images_is_refused(images):
    said = "p: 3 trials of 2 images, at most 1 a class, wanted, here has 5 in its test split"
    with pytest.raises(ProtocolError, match=said):
        draw_images("p", images(), 0, trials=3, batch_size=2, per_class=1)


def test_small_copy_of_a_set_without_a_fixed_size_is_unavailable(images):
    said = (
        "imagenet with 61 trials of 1 images for p is not available: tried the copy here, which "
        "has 60 in its test split; get it by: gated: "
    )
    with pytest.raises(DataUnavailable, match=said):
        draw_images("p", images("imagenet"), 0, trials=61, batch_size=1)


def test_images_are_made_when_their_batch_is_asked_for(images):
    made = []
    batches = draw_images("p", images(made=made), 0, trials=20, batch_size=3)
    assert made == []
    assert torch.equal(batches[7].images, batches[7].images)
    assert made == [3, 3]
    assert [batch.images.tolist() for batch in batches[4:6]] == [
        batches[4].images.tolist(),
        batches[5].images.tolist(),
    ]


def test_limit_is_part_of_what_a_protocol_s_digest_identifies(tiny):
    def digest(**limit):
        return load_protocol(str(tiny(data={"name": "digits", "size": 8, **limit}))).digest

    assert digest() == digest(per_class=None) != digest(per_class=2)
