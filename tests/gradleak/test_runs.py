import subprocess
import sys

import pytest

import gradleak


def test_run_returns_a_row_a_trial(tmp_path):
    chosen = {"attacks": ["random"], "defenses": ["none"], "trials": 2, "seeds": [0]}
    frame = gradleak.run("quick_digits_b", results=tmp_path, **chosen)
    assert list(frame["attack"]) == ["random"] * 2
    assert frame["psnr"].notna().all()


def test_what_does_not_fit_is_an_error(tmp_path):
    with pytest.raises(gradleak.BenchmarkError, match="nonesuch"):
        gradleak.run("quick_digits_b", attacks=["nonesuch"], results=tmp_path)


def test_every_word_of_the_package_is_there_and_importing_it_is_quick():
    assert all(getattr(gradleak, name) is not None for name in gradleak.__all__)
    code = "import sys, gradleak; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    with pytest.raises(AttributeError, match="has no attribute 'nonesuch'"):
        gradleak.nonesuch  # noqa: B018
