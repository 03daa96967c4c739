"""What runs on a stranger's pull request can neither write nor tell a secret."""

from pathlib import Path

import pytest
import yaml

GITHUB = Path(__file__).parents[1] / ".github"
SUBMISSION = GITHUB / "workflows" / "submission.yml"


def test_workflow_of_submissions_reads_and_no_more():
    said = yaml.safe_load(SUBMISSION.read_text())
    assert said["permissions"] == {"contents": "read"}
    assert set(said[True]) == {"pull_request"}  # to YAML 1.1 the key `on` is true
    text = SUBMISSION.read_text()
    assert "secrets." not in text
    assert "pull_request_target" not in text


def test_no_checkout_keeps_its_token_and_no_word_of_the_request_reaches_a_shell():
    (job,) = yaml.safe_load(SUBMISSION.read_text())["jobs"].values()
    checkouts = [s for s in job["steps"] if s.get("uses", "").startswith("actions/checkout")]
    assert [s["with"]["persist-credentials"] for s in checkouts] == [False, False]
    assert all("${{" not in step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("form", ["new-attack", "new-defense", "wrong-number"])
def test_issue_forms_ask_for_something(form):
    said = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / f"{form}.yml").read_text())
    assert {"name", "description", "labels", "body"} <= said.keys()
    assert all(one["attributes"]["label"] for one in said["body"])
    assert any(one["validations"]["required"] for one in said["body"])
