"""GPU descriptions and what moving data between GPUs costs.

A description is a TOML file: ``calib/data/gpus/<system>.toml`` ships for H20, H20-3e, H100 SXM and H200 SXM; `load_gpu` takes
the path of any other file with the same fields.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

import msgspec

from calib.errors import BreakdownError
from calib.files import read_bytes

LinkScope = Literal["intra-node", "pcie", "inter-node"]
NEVER_MEASURED: Final = "never measured"  # no campaign covers a pipeline across nodes yet


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Peak figures of one GPU and its links.

    Dense TFLOPS, memory in GB and GB/s, link bandwidth in GB/s for one direction and one GPU, latency in µs.
    """

    name: str
    system: str
    source: str
    bf16_tflops: float
    fp8_tflops: float
    memory_gb: float
    memory_gb_per_s: float
    gpus_per_node: int
    nvlink: bool
    intra_node_gb_per_s: float
    inter_node_gb_per_s: float
    pcie_gb_per_s: float
    link_latency_us: float

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 < value < 1e9:
                raise ValueError(f"{name} must be positive")

    def scope(self, span: int) -> LinkScope:
        """Which link joins GPUs of a worker that spans ``span`` GPUs."""
        if span > self.gpus_per_node:
            return "inter-node"
        return "intra-node" if self.nvlink else "pcie"

    def link_gb_per_s(self, span: int) -> float:
        """Bandwidth [GB/s] between GPUs of a worker that spans ``span`` GPUs."""
        by_scope = {
            "intra-node": self.intra_node_gb_per_s,
            "pcie": self.pcie_gb_per_s,
            "inter-node": self.inter_node_gb_per_s,
        }
        return by_scope[self.scope(span)]

    def hop_ms(self, size_bytes: float, *, tp: int, pp: int) -> float:
        """One stage-to-stage transfer [ms] of ``size_bytes``; the slowest link of the worker's ``tp*pp`` GPUs sets it."""
        if pp == 1:
            return 0.0
        return self.link_latency_us / 1e3 + size_bytes / self.link_gb_per_s(tp * pp) / 1e6

    def all_reduce_ms(self, size_bytes: float, *, tp: int) -> float:
        """One all-reduce [ms] over ``tp`` GPUs: a ring moves ``2*(tp-1)/tp`` of the message over the slowest link."""
        if tp == 1:
            return 0.0
        return self.link_latency_us / 1e3 + 2 * (tp - 1) / tp * size_bytes / self.link_gb_per_s(tp) / 1e6


def shipped_gpus() -> tuple[str, ...]:
    """Systems that have a description."""
    names = (p.name for p in (files("calib.data") / "gpus").iterdir())
    return tuple(sorted(n.removesuffix(".toml") for n in names if n.endswith(".toml")))


def load_gpu(system: str | Path) -> Gpu:
    """The description of a shipped system, or the one in a TOML file.

    Raises
    ------
    BreakdownError
        Neither a shipped system nor a readable description.
    """
    path = Path(system)
    if path.suffix != ".toml":
        if str(system) not in shipped_gpus():
            raise BreakdownError(
                "has no GPU description", field="system", value=str(system),
                remedy=f"use one of {', '.join(shipped_gpus())}, or give a TOML file of the same form",
            )  # fmt: skip
        data, file = (files("calib.data") / "gpus" / f"{system}.toml").read_bytes(), f"{system}.toml"
    else:
        data, file = read_bytes(path, kind=BreakdownError), str(path)
    try:
        return msgspec.toml.decode(data, type=Gpu)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BreakdownError(
            f"is not a GPU description ({error})", file=file, remedy="compare with calib/data/gpus/h200_sxm.toml"
        ) from None
