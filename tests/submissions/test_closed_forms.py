"""What the closed forms must reach, trial by trial, in dB PSNR."""

from dataclasses import replace

import pytest
import torch

from benchmark.contract import Update

TRIALS = 2  # `gradleak verify quick` draws from all there are


@pytest.fixture
def psnr(quick):
    def score(protocol, attack, defense="none"):
        bench = quick(protocol)
        trials = min(TRIALS, bench.protocol.trials)
        records = bench.run(attack, defense, trials=trials)
        assert [record.status for record in records] == ["completed"] * trials
        return [record.metrics["psnr"] for record in records]

    return score


@pytest.mark.parametrize(
    ("protocol", "attack"),
    [
        ("quick_digits_a", "april_closed_form"),
        ("quick_digits_a", "position_closed_form"),
        ("quick_digits_b", "position_closed_form"),
        ("quick_faces_b", "position_closed_form"),
    ],
)
def test_position_gradient_gives_every_trial_away(psnr, protocol, attack):
    assert min(psnr(protocol, attack)) > 100


@pytest.mark.parametrize("defense", ["none", "fixed_position", "withhold_position"])
def test_span_gives_every_trial_away_without_the_position_gradient(psnr, defense):
    assert min(psnr("quick_digits_b", "span_closed_form", defense)) > 90


@pytest.mark.parametrize("attack", ["april_closed_form", "position_closed_form"])
@pytest.mark.parametrize("defense", ["fixed_position", "withhold_position"])
def test_without_a_position_gradient_its_closed_forms_are_not_applicable(quick, attack, defense):
    (record,) = quick("quick_digits_a").run(attack, defense)
    assert (record.status, record.trial) == ("not_applicable", None)
    assert record.reason == "the update holds no position gradient"


def test_april_s_closed_form_is_not_applicable_behind_a_norm(quick):
    (record,) = quick("quick_digits_b").run("april_closed_form")
    assert record.status == "not_applicable"
    assert record.reason == "the first attention does not read the embeddings directly"


def test_april_s_closed_form_goes_on_anywhere_if_it_is_told_to_and_reads_nothing_there(quick):
    beyond = quick("quick_digits_b").run("april_closed_form,anywhere=True")
    assert {record.status for record in beyond} == {"completed"}
    assert max(record.metrics["psnr"] for record in beyond) < 12
    within, plain = (
        quick("quick_digits_a").run(f"april_closed_form{said}") for said in (",anywhere=True", "")
    )
    assert [one.metrics for one in within] == [one.metrics for one in plain]


@pytest.mark.parametrize(
    ("defense", "ceiling"),
    [("fixed_position,encoding=sincos_2d", 30), ("narrow_width", 20)],
)
def test_dependent_positions_and_narrow_widths_hide_the_image_from_the_span(psnr, defense, ceiling):
    assert max(psnr("quick_digits_b", "span_closed_form", defense)) < ceiling


@pytest.mark.parametrize(
    ("attack", "defense"),
    [
        ("position_closed_form", "narrow_width"),
        ("span_closed_form", "fixed_position,encoding=sincos_2d"),
    ],
)
def test_rounding_decides_nothing_where_an_image_is_not_determined(quick, seen_by, attack, defense):
    bench = quick("quick_digits_b")
    seen = seen_by(bench, attack, defense)[0]
    state, draws = seen.generator.get_state(), torch.Generator().manual_seed(0)

    def answer(rounding):
        update = {
            name: gradient * (1 + rounding * (2 * torch.rand(gradient.shape, generator=draws) - 1))
            for name, gradient in seen.update.items()
        }
        seen.generator.set_state(state)
        return bench.cell(attack).attack.build().reconstruct(replace(seen, update=Update(update)))

    exact, rounded = (answer(rounding).images for rounding in (0, 2**-22))
    assert exact.std() > 0.01
    assert (rounded - exact).abs().max() < 0.01


@pytest.mark.parametrize(
    ("attack", "law"),
    [("position_closed_form", "laplacian_noise"), ("span_closed_form", "gaussian_noise")],
)
def test_more_noise_leaves_less_of_every_trial(psnr, attack, law):
    scores = [psnr("quick_digits_b", attack, f"{law},scale={s}") for s in (0.001, 0.1)]
    assert all(little > much for little, much in zip(*scores, strict=True))


@pytest.mark.slow
def test_position_gradient_gives_a_photograph_away_on_vit_b32(psnr):
    assert min(psnr("quick_photographs_vit_b32", "position_closed_form")) > 80


@pytest.mark.slow
def test_span_gives_a_photograph_away_on_vit_b16_with_fixed_positions(psnr):
    scores = psnr("photographs_vit_b16", "span_closed_form", "fixed_position")
    assert min(scores) > 40


@pytest.mark.parametrize("defense", ["none", "fixed_position"])
def test_a_batch_of_four_is_read_from_one_gradient(psnr, defense):
    scores = psnr("quick_digits_b_batch4", "batch_closed_form", defense)
    assert min(scores) > 80


@pytest.mark.parametrize(
    ("protocol", "defense", "reason"),
    [
        ("quick_digits_b", "none", "a batch of one image is read by span_closed_form"),
        (
            "quick_digits_b_batch4",
            "narrow_width",
            "17 tokens of a batch, more than the victim's width of 4",
        ),
    ],
)
def test_a_batch_is_read_where_its_tokens_fit(quick, protocol, defense, reason):
    (record,) = quick(protocol).run("batch_closed_form", defense)
    assert (record.status, record.reason) == ("not_applicable", reason)


@pytest.mark.parametrize("scale", [pytest.param(0.01, marks=pytest.mark.slow), 0.1])
def test_matching_from_a_closed_form_s_answer_takes_noise_off_every_trial(psnr, scale):
    noise = f"gaussian_noise,scale={scale}"
    before = psnr("quick_digits_search", "position_closed_form", noise)
    after = psnr("quick_digits_search", "matched_closed_form", noise)
    assert all(new > old + 5 for old, new in zip(before, after, strict=True))


def test_matching_from_a_closed_form_s_answer_costs_nothing_where_nothing_defends(psnr):
    assert min(psnr("quick_digits_search", "matched_closed_form")) > 120


@pytest.mark.parametrize("protocol", ["quick_digits_a", "quick_digits_b"])
def test_encrypted_model_hides_images_from_who_ignores_it_and_gives_its_key_away(psnr, protocol):
    assert max(psnr(protocol, "position_closed_form", "model_encryption")) < 15
    assert min(psnr(protocol, "key_recovery", "model_encryption")) > 100


NARROW = {
    "data": {"name": "digits", "size": 28},
    "victim": {"architecture": "april_b", "width": 32, "depth": 2, "patch": 7},
}


def test_a_narrow_encrypted_model_gives_no_image_away_unless_a_client_colludes(bench):
    def scores(*more):
        made = bench(**NARROW, threat={"grants": ["batch_size", "data_statistics", *more]})
        records = made.run("key_recovery", "model_encryption")
        assert {record.status for record in records} == {"completed"}
        return [record.metrics["psnr"] for record in records]

    assert max(scores()) < 20
    assert min(scores("client_keys")) > 40


@pytest.mark.parametrize("protocol", ["quick_digits_b", "quick_digits_b_colluding"])
def test_without_another_model_there_is_no_key_to_recover(quick, protocol):
    (record,) = quick(protocol).run("key_recovery")
    assert record.status == "not_applicable"
    assert record.reason == "the server holds the weights that it made; there is no key"
