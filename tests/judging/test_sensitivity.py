"""What s hangs on, and what it does not."""

from __future__ import annotations

from calib import load_campaign
from calib.judging.sensitivity import CHOICES, vary_choices


def test_every_choice_is_in_the_table():
    rows = vary_choices(load_campaign("h200-vllm-pp"))
    told = list(dict.fromkeys(r["choice"] for r in rows))
    assert told == [c.label for c in CHOICES if c.label != "peak matching"]  # that is the campaign's own
    by = {(r["choice"], r["model"]): r["s"] for r in rows}
    for model in ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B", "Qwen/Qwen3-32B-FP8"):
        published = by[("as published", model)]
        # Without balance the residual holds the imbalance too, so s is larger.
        assert by[("balance 1", model)] > published
        assert abs(by[("balance of mixed prefill and decode steps", model)] - published) < 0.01


def test_a_choice_that_cannot_be_made_says_why():
    rows = vary_choices(load_campaign("h20-trtllm-pp"))
    notes = {r["choice"]: r["note"] for r in rows if r["note"]}
    assert "no common peak" in notes["peak matching"]
    assert "no usable efficiency" in notes["balance of mixed prefill and decode steps"]
