"""GPU descriptions, and what a link costs by where it runs."""

from __future__ import annotations

from importlib.resources import files

import msgspec
import pytest

from calib.errors import BreakdownError
from calib.pipeline.gpu import load_gpu, shipped_gpus


def test_the_shipped_descriptions_load_and_state_their_source():
    assert shipped_gpus() == ("h100_sxm", "h200_sxm", "h20_sxm", "h20e_sxm")
    for name in shipped_gpus():
        gpu = load_gpu(name)
        assert gpu.system == name
        assert len(gpu.source) > 30
    assert load_gpu("h20e_sxm").memory_gb_per_s == 4800
    assert load_gpu("h20_sxm").bf16_tflops == 148


def test_the_span_of_a_worker_selects_the_link():
    gpu = load_gpu("h200_sxm")
    assert [gpu.scope(n) for n in (1, 8, 9, 16)] == ["intra-node", "intra-node", "inter-node", "inter-node"]
    assert (gpu.link_gb_per_s(8), gpu.link_gb_per_s(16)) == (450, 50)
    plain = msgspec.structs.replace(gpu, nvlink=False)
    assert (plain.scope(8), plain.link_gb_per_s(8)) == ("pcie", 64)


def test_a_hop_is_latency_and_transfer_over_the_slowest_link_of_the_worker():
    gpu = load_gpu("h200_sxm")
    size = 450e6  # 1 ms at 450 GB/s, 9 ms at 50 GB/s
    assert gpu.hop_ms(size, tp=4, pp=2) == pytest.approx(0.010 + 1.0)
    assert gpu.hop_ms(size, tp=8, pp=2) == pytest.approx(0.010 + 9.0)
    assert gpu.hop_ms(size, tp=8, pp=1) == 0.0


def test_an_all_reduce_is_a_ring_over_the_tp_group():
    gpu = load_gpu("h200_sxm")
    assert gpu.all_reduce_ms(450e6, tp=1) == 0.0
    assert gpu.all_reduce_ms(450e6, tp=8) == pytest.approx(0.010 + 2 * 7 / 8)
    assert gpu.all_reduce_ms(450e6, tp=16) == pytest.approx(0.010 + 2 * 15 / 16 * 9)


def test_an_own_description_is_a_file_of_the_same_form(tmp_path):
    text = (files("calib.data") / "gpus" / "h200_sxm.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace('system = "h200_sxm"', 'system = "mine"'))
    assert load_gpu(str(tmp_path / "mine.toml")).system == "mine"


@pytest.mark.parametrize(
    ("old", "new"), [("bf16_tflops = 989", "bf16_tflops = 0"), ("nvlink = true", "nvlink = 1"), ("name =", "colour =")]
)
def test_a_wrong_description_is_named(tmp_path, old, new):
    text = (files("calib.data") / "gpus" / "h200_sxm.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace(old, new))
    with pytest.raises(BreakdownError, match=r"mine.toml: is not a GPU description"):
        load_gpu(tmp_path / "mine.toml")


def test_an_unknown_system_lists_the_known_ones():
    with pytest.raises(BreakdownError, match="use one of h100_sxm"):
        load_gpu("b200_sxm")
