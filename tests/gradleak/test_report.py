import re

import torch
from torch.nn.functional import cross_entropy

import gradleak


def _external(html):
    return re.findall(r"https?://|src=\"(?!data:)|href=|<script|@import|url\(", html)


def test_report_of_images_is_one_file_without_external_urls(timm_vit, image, tmp_path):
    cross_entropy(timm_vit((image - 0.5) / 0.5), torch.tensor([3])).backward()
    chosen = {"attacks": ["position_closed_form,defaults", "span_tokens,defaults"]}
    report = gradleak.audit(timm_vit, timm_vit, truth=image, labels=[3], **chosen)
    report.save(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert not _external(html)
    assert html.count("data:image/png;base64,") == 2  # the original and its reconstruction
    assert "gives the whole batch away, exactly" in html
    assert "labels [3]" in html
    assert "gaussian_noise" in html
    assert "reads text; the model reads images" in html  # why the other attack did not run


def test_report_of_text_marks_exact_tokens(gpt2, tokens, tmp_path):
    gpt2(tokens, labels=tokens).loss.backward()
    chosen = {"attacks": ["span_tokens,defaults"]}
    report = gradleak.audit(gpt2, gpt2, truth=tokens, **chosen)
    report.save(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert html.count("<mark>") == 12 + 1  # and the word that explains it
    assert not _external(html)
