"""Maps of answers as rows, against plain loops."""

import pytest
import torch

from onesigma.forms.places import Places, all_rows, as_map


@pytest.mark.parametrize(("shape", "class_dim"), [((3, 4, 5, 6), 1), ((3, 7, 4), 2), ((2, 4), 1)])
def test_all_rows_and_back(shape, class_dim):
    answers = torch.randn(shape)
    rows = all_rows(answers, class_dim)
    assert rows.shape == (answers.numel() // shape[class_dim], shape[class_dim])
    assert torch.equal(as_map(rows, answers, class_dim), answers)
    assert torch.equal(
        as_map(rows.sum(1), answers, class_dim), as_map(rows, answers, class_dim).sum(class_dim)
    )


def test_chosen_positions_of_passes():
    generator = torch.Generator().manual_seed(0)
    passes = torch.randn(2, 5, 3, 20, 20)  # inputs, passes, classes, a map
    places = Places.of(passes[:, 0].shape, 1, generator)
    found = places.rows_of_passes(passes)
    assert found.shape == (2 * places.count, 5, 3)
    assert places.count < 400
    for k in (0, 7, places.count - 1):
        row, column = divmod(int(places.chosen[k]), 20)
        for i in range(2):
            assert torch.equal(found[i * places.count + k], passes[i, :, :, row, column])
            one = places.rows(passes[:, 3])[places.index(torch.tensor([i]))]
            assert torch.equal(one[k], passes[i, 3, :, row, column])


def test_one_answer_for_each_input_stays_as_it_is():
    places = Places.of(torch.Size((5, 3)), 1, torch.Generator())
    answers = torch.randn(5, 3)
    assert places.count == 1
    assert places.rows(answers) is answers
    assert places.index(torch.tensor([4, 2])).tolist() == [4, 2]
