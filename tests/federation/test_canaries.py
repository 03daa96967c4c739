import pytest
import torch

from benchmark.data import ImageSet, TokenSet, load_images
from benchmark.errors import ProtocolError
from benchmark.federation import canary_images, canary_text, draw_images
from benchmark.metrics.psnr import psnr
from benchmark.seeds import Key

KEY, OTHER = Key(b"sixteen bytes 16"), Key(b"sixteen bytes 17")
SIZES = {"trials": 3, "users": 2, "batch_size": 2, "length": 40}


@pytest.fixture(scope="module")
def digits():
    return load_images("digits", "test", 8)


@pytest.fixture(scope="module")
def drawn(digits):
    return draw_images("p", digits, 7, trials=40, batch_size=2)


def test_no_image_of_the_data_is_near_a_canary(digits, drawn):
    canaries = torch.cat([batch.images for batch in canary_images(drawn, 0, KEY)])
    nearest = [max(psnr(image, other) for other in digits.images) for image in canaries]
    assert sum(nearest) / len(nearest) < 18
    assert max(nearest) < 35


def test_canary_has_the_label_brightness_and_contrast_of_the_image_it_is_mostly_of(drawn):
    for batch, canary in zip(drawn, canary_images(drawn, 0, KEY), strict=True):
        assert torch.equal(batch.labels, canary.labels)
        own, made = (x.images.flatten(1).std(1).mean() for x in (batch, canary))
        assert abs(own - made) < 0.1
        own, made = (x.images.flatten(1).mean(1) for x in (batch, canary))
        assert (own - made).abs().max() < 0.1
        assert canary.images.min() >= 0
        assert canary.images.max() <= 1
        levels = canary.images * 255
        torch.testing.assert_close(levels, levels.round(), atol=1e-3, rtol=0)


def test_canary_hangs_on_the_key_the_seed_and_the_trial_and_on_nothing_else(drawn):
    plain = canary_images(drawn, 0, KEY)
    assert torch.equal(plain[3].images, canary_images(drawn, 0, KEY)[3].images)
    assert torch.equal(plain[1:4][2].images, plain[3].images)
    for other in (canary_images(drawn, 0, OTHER), canary_images(drawn, 1, KEY)):
        assert not torch.equal(plain[3].images, other[3].images)


def test_a_canary_wants_two_images():
    one = ImageSet("one", "test", torch.zeros(1, 1, 8, 8), torch.zeros(1).long(), ("a",))
    with pytest.raises(ProtocolError, match="one: a canary is of two images; the split has one"):
        canary_images(draw_images("p", one, 0, trials=1, batch_size=1), 0, KEY)


@pytest.fixture(scope="module")
def text():
    """Thirty users whose tokens say whose they are, and where."""
    users = {str(i): torch.arange(i * 1000, i * 1000 + 200) for i in range(30)}
    return TokenSet("here", "test", users, "people")


def test_canary_text_is_of_short_runs_that_many_users_wrote(text):
    batches = canary_text("p", text, 0, key=KEY, **SIZES)
    assert [batch.tokens.shape for batch in batches] == [(4, 40)] * 3
    for row in torch.cat([batch.tokens for batch in batches]):
        ends = ((row[1:] - row[:-1]) != 1).nonzero().flatten()
        assert len((row // 1000).unique()) >= 3
        assert torch.diff(ends).max() <= 2 * 12  # two runs of one user may meet
    assert batches[0].masked is None


def test_canary_text_hangs_on_the_key_and_fewer_trials_are_the_first_of_more(text):
    plain, other = (canary_text("p", text, 0, key=key, **SIZES) for key in (KEY, OTHER))
    assert not torch.equal(plain[0].tokens, other[0].tokens)
    few = canary_text("p", text, 0, key=KEY, **SIZES | {"trials": 1}, masked=True)
    assert torch.equal(few[0].tokens, plain[0].tokens)
    assert few[0].masked.any(dim=1).all()


def test_text_too_short_for_a_run_is_refused():
    short = TokenSet("here", "test", {"a": torch.arange(11)}, "people")
    with pytest.raises(ProtocolError, match="p: no user of here has 12 tokens for a canary"):
        canary_text("p", short, 0, key=KEY, **SIZES)
