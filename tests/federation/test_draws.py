import pytest
import torch

from benchmark.data import TokenSet
from benchmark.errors import ProtocolError
from benchmark.federation import draw_text

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
