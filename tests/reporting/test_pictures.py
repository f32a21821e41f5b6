"""Figures for notebooks: shown as SVG without any plotting backend, saved only where nothing is."""

from __future__ import annotations

import pytest

import calib
from calib.errors import UsageError


@pytest.fixture(scope="module")
def fit():
    return calib.fit(calib.decompose(calib.load_campaign("h200-vllm-pp")))


def test_a_picture_shows_itself_the_same_every_time(fit):
    first, again = calib.plot_efficiency(fit, "vllm")._repr_svg_(), calib.plot_efficiency(fit, "vllm")._repr_svg_()
    assert first == again
    assert first.lstrip().startswith("<?xml")
    assert "<svg" in first


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_a_picture_is_saved_and_never_overwritten(fit, tmp_path, kind):
    picture, path = calib.plot_efficiency(fit, "vllm"), tmp_path / f"a.{kind}"
    picture.save(path)
    before = path.read_bytes()
    assert len(before) > 1000
    with pytest.raises(UsageError, match="exists already"):
        picture.save(path)
    assert path.read_bytes() == before


def test_wrong_questions_are_answered_in_words(fit, tmp_path):
    with pytest.raises(UsageError, match="'backend' = 'sglang': was not fitted; name one of vllm"):
        calib.plot_efficiency(fit, "sglang")
    with pytest.raises(UsageError, match=r"must end in \.svg"):
        calib.plot_efficiency(fit, "vllm").save(tmp_path / "a.jpg")


def test_stages_are_a_picture():
    campaign = calib.load_campaign("h200-vllm-pp")
    explained = calib.explain_stages(
        "Qwen/Qwen3-8B", system="h200_sxm", backend="vllm", tp=1, pp=8, concurrency=64, isl=4000, osl=1000,
        sources=[campaign.breakdowns],
    )  # fmt: skip
    assert "<svg" in calib.plot_stages(explained)._repr_svg_()
