"""What stands where no bin was read."""

from types import SimpleNamespace

import pytest
import torch

from submissions.attacks.decepticon.filling import fill_masked, fill_rest
from submissions.attacks.decepticon.sheet import Sheet

MASK = 7


@pytest.fixture
def tables():
    return SimpleNamespace(codes=torch.arange(1.0, 11.0), mask=MASK)


def counts_of(*words):
    return torch.bincount(torch.tensor(words), minlength=10)


def half_read():
    sheet = Sheet.empty(1, 4)
    sheet.tokens[:] = torch.tensor([[5, MASK, 6, MASK]])
    sheet.codes[:] = torch.tensor([[0.0, 3.0, 1.0, 4.0]])
    sheet.blocks[:] = torch.tensor([[0, 1, 1, 1]])
    return sheet


def test_a_code_that_noise_made_zero_keeps_no_masked_token_from_being_read(tables):
    filled = fill_masked(half_read(), counts_of(2, 4), tables)
    assert filled.tokens.tolist() == [[5, 2, 6, 4]]


def test_what_is_filled_is_another_sheet(tables):
    sheet = half_read()
    fill_rest(fill_masked(sheet, counts_of(2, 4), tables), counts_of(2, 4), tables)
    assert sheet.tokens.tolist() == [[5, MASK, 6, MASK]]


def test_words_left_over_are_put_where_masks_were_not_read(tables):
    filled = fill_rest(half_read(), counts_of(2, 4, 4), tables)
    assert filled.tokens[0, [0, 2]].tolist() == [5, 6]
    assert sorted(filled.tokens[0, [1, 3]].tolist()) == [2, 4]
    assert not filled.certain.any()


def test_the_only_word_left_is_certain_where_all_others_are():
    tables, sheet = SimpleNamespace(mask=None), Sheet.empty(1, 4)
    sheet.tokens[0, :3], sheet.certain[0, :3] = torch.tensor([5, 1, 6]), True
    filled = fill_rest(sheet, counts_of(1, 6, 3), tables)
    assert filled.tokens.tolist() == [[5, 1, 6, 3]]
    assert filled.certain.all()
