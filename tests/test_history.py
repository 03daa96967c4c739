import json
import subprocess

import pytest

from benchmark.errors import RecordError
from benchmark.history import history
from benchmark.records import append


@pytest.fixture
def kept(tmp_path, bench):
    """Keep trials of `random` in a repository, a commit each time."""
    made = bench()
    results = tmp_path / "results"
    (results / made.protocol.name).mkdir(parents=True)
    frozen = results / made.protocol.name / "protocol.json"
    frozen.write_text(json.dumps(made.protocol.frozen()))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)

    def keep(trials):
        records = [r for r in made.run("random") if r.trial in trials]
        append(results / made.protocol.name / "random.jsonl", records)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", "records"], check=True)
        return results, made.protocol.name

    return keep


def test_a_row_stands_where_a_number_changed(kept):
    kept((0,))
    results, name = kept((1, 2))
    rows = history(results, name, "random", "none").splitlines()[2:]
    assert [row.split()[5] for row in rows] == ["1", "3"]


def test_cell_without_records_ends_in_one_line(kept):
    results, name = kept((0,))
    with pytest.raises(RecordError, match="no such file"):
        history(results, name, "nonesuch", "none")
    with pytest.raises(RecordError, match="holds no trial under 'mjp'"):
        history(results, name, "random", "mjp")
