import pytest
import torch
from threadpoolctl import threadpool_limits

from benchmark.errors import BenchmarkError
from benchmark.registry import Registry
from benchmark.running.plan import groups
from benchmark.running.shard import Shard, split


@pytest.fixture
def many(bench):
    """Return nine groups of a protocol."""
    registry = Registry()
    defenses = registry.all("defense")[:9]
    return groups([bench().protocol], defenses, registry.select("attack", ["random"]), None, 2)


def test_every_group_is_in_one_part_and_parts_are_alike_in_size(many, tmp_path):
    parts = [Shard(number, 3).of(many, tmp_path, 1) for number in (1, 2, 3)]
    assert sorted(map(str, (g for part in parts for g in part))) == sorted(map(str, many))
    assert {len(part) for part in parts} == {3}


def test_a_part_that_is_begun_again_is_the_same_whatever_has_been_recorded(
    many, tmp_path, monkeypatch
):
    first = split(many, 2, tmp_path, 1)
    dear = [1000.0, *[0.0] * 8]
    monkeypatch.setattr("benchmark.running.shard.seconds_of", lambda *_: dear)
    assert split(many, 2, tmp_path, 1) == first
    assert split(many, 2, tmp_path / "other", 1).count(0) == 1  # the dear group alone


@pytest.mark.parametrize("text", ["0/2", "3/2", "two", "1", "1/", "-1/2"])
def test_what_is_no_part_ends_in_one_line(text):
    with pytest.raises(BenchmarkError, match="wanted a part such as 2/3"):
        Shard.read(text)


@pytest.fixture
def one_thread():
    """Let this process compute as each of several does: on one thread, to the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_parts_of_a_run_joined_and_jobs_are_the_run_itself(tiny, gradleak, numbers, tmp_path):
    words = ["run", tiny(seeds=[0, 1]), "--attack", "random", "--attack", "span_closed_form"]
    words += ["--defense", "none", "--defense", "gaussian_noise,scale=0.01"]
    assert gradleak(*words, "--results", tmp_path / "whole").code == 0
    whole = numbers(tmp_path / "whole")
    for part in ("1/2", "2/2"):
        assert gradleak(*words, "--results", tmp_path / part[0], "--shard", part).code == 0
        assert 0 < len(numbers(tmp_path / part[0])) < len(whole)
    both = [tmp_path / "1", tmp_path / "2"]
    assert gradleak("merge", *both, "--results", tmp_path / "joined").code == 0
    assert numbers(tmp_path / "joined") == whole
    ended = gradleak(*words, "--results", tmp_path / "jobs", "--jobs", 2)
    assert (ended.code, ended.err) == (0, "")
    assert numbers(tmp_path / "jobs") == whole
