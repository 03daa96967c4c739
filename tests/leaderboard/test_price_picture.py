import re

import pytest

from benchmark.leaderboard.figures import FIGURES
from benchmark.leaderboard.price_picture import Dot, picture


@pytest.mark.parametrize("number", [1, 10, 40])
def test_every_name_beside_the_dots_lies_within_the_picture(number):
    dots = [Dot(float(i), 50.0 + i, f"defense {i}", "#888888") for i in range(number)]
    drawn = picture(dots, "worst case", FIGURES["vision"])
    assert all(f"defense {i}" in drawn for i in range(number))
    high = float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', drawn)[1])
    heights = [float(y) for y in re.findall(r'<text [^>]*\by="([\d.-]+)"', drawn)]
    assert len(heights) > number
    assert all(0 < y < high for y in heights)
