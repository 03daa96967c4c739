import pytest

from benchmark.errors import RecordError
from benchmark.prices import Price, Prices
from benchmark.protocol import load_utility
from benchmark.registry import Registry

LINE = (
    '{{"protocol":"p","digest":"d","defense":"none","version":"1","harness":"1","seed":0,'
    '"description":{{}},"rate":0.1,{said},"seconds":1,"sent":1,"provenance":{{"commit":null,'
    '"dirty":null,"versions":{{}},"hardware":"a processor","threads":1}}}}\n'
)


@pytest.fixture
def read(tmp_path):
    def reading(said):
        (tmp_path / "utility.jsonl").write_text(LINE.format(said=said))
        return Prices(tmp_path)

    return reading


@pytest.mark.parametrize(
    ("said", "figure", "told"),
    [
        ('"accuracy":0.5', 0.5, "50.0 %"),
        ('"perplexity":321.04', 321.04, "321.0"),
        ('"perplexity":3.21e40', 3.21e40, "3.2e+40"),
        ('"accuracy":null,"reason":"too narrow"', None, "n/a: too narrow"),  # as older lines say it
        ('"reason":"too narrow"', None, "n/a: too narrow"),
    ],
)
def test_a_price_is_an_accuracy_a_perplexity_or_a_reason(read, said, figure, told):
    (price,) = read(said).found.values()
    assert (price.figure, price.told) == (figure, told)


@pytest.mark.parametrize("said", ['"accuracy":0.5,"perplexity":9.0', '"accuracy":null'])
def test_a_price_says_one_thing(read, said):
    with pytest.raises(RecordError, match="wanted one of accuracy, perplexity and reason"):
        read(said)


def test_what_is_written_is_read_again(read, tmp_path):
    (price,) = read('"perplexity":321.5').found.values()
    (tmp_path / "utility.jsonl").unlink()
    Prices(tmp_path).add(price)
    assert list(Prices(tmp_path).found.values()) == [price]
    assert isinstance(price, Price)


def test_price_of_an_older_version_does_not_count_and_the_last_of_several_does(tmp_path):
    defense = Registry().find("defense", "censor,defaults")[0]
    protocol = load_utility("digits_small_b")

    def line(version, accuracy):
        said = LINE.format(said=f'"accuracy":{accuracy}').replace('"none"', '"censor"')
        said = said.replace('"p"', '"digits_small_b"').replace('"d"', f'"{protocol.digest}"')
        return said.replace('"version":"1"', f'"version":"{version}"')

    def now(*lines):
        (tmp_path / "utility.jsonl").write_text("".join(lines))
        return Prices(tmp_path).now(protocol, defense, 0)

    assert now(line("0", 0.5)) is None
    assert now(line("1+noise.2", 0.4)).accuracy == 0.4  # it draws without that package now
    assert now(line("1+noise.2", 0.4), line("1", 0.5)).accuracy == 0.5
