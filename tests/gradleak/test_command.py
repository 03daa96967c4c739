import sys

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

from benchmark.cli import main


@pytest.fixture
def audit(monkeypatch, capsys, tmp_path):
    def call(*words):
        output = ["--output", str(tmp_path / "report.html")]
        monkeypatch.setattr(sys, "argv", ["gradleak", "audit", *map(str, words), *output])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return call


def test_hugging_face_folder_and_files_are_audited(audit, hugging_face_vit, image, tmp_path):
    hugging_face_vit.save_pretrained(tmp_path / "vit")
    cross_entropy(hugging_face_vit(image).logits, torch.tensor([3])).backward()
    named = hugging_face_vit.named_parameters()
    save_file({name: each.grad.contiguous() for name, each in named}, tmp_path / "u.safetensors")
    chosen = ("--attack", "position_closed_form,defaults", "--labels", "3")
    given = ("--model", f"hf:{tmp_path / 'vit'}", "--update", tmp_path / "u.safetensors")
    code, out, _ = audit(*given, *chosen)
    assert code == 0
    assert "gives the whole batch away, exactly" in out
    assert (tmp_path / "report.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "wanted --model, or --demo"),
        (["--model", "vit"], "wanted --update, or --input"),
        (["--model", "vit", "--input", "no.png"], "wanted timm:NAME or hf:FOLDER"),
        (["--model", "timm:no_such", "--input", "no.png"], "timm has no model 'no_such'"),
        (["--model", "hf:nowhere", "--input", "no.png"], "no config.json"),
        (["--model", "timm:resnet18", "--update", "no.safetensors"], "no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(audit, words, said, tmp_path):
    code, _, err = audit(*words)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "report.html").exists()
