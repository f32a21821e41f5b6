"""The coefficient file: strict, immutable, the same digest for the same content."""

from __future__ import annotations

import hashlib
import json

import jsonschema
import msgspec
import pytest
from support.paths import ROOT

from calib.coefficients.file import CoefficientSet, json_schema
from calib.coefficients.records import (
    BalanceFactor,
    BalanceSource,
    Coefficient,
    ContestRow,
    Created,
    Deviation,
    Domain,
    Estimate,
    FormTest,
    InputFile,
    Span,
    VersionRange,
)
from calib.errors import CoefficientFileError, OutputError

SCHEMA = ROOT / "calib" / "data" / "coefficients-v1.schema.json"


def full(**changes) -> CoefficientSet:
    """A set with every field filled, none at its default, and numbers that do not round."""
    estimate = Estimate(
        parameters=("s",), values=(0.1 + 0.2,), stderr=(1 / 3,), covariance=((1 / 9,),), interval95=(Span(low=-1.1, high=1.7),),
        t_quantile=4.302652729911275, scatter=1e-300, dof=2, n=3,
    )  # fmt: skip
    domain = Domain(
        gpus=(8,), tp=(1, 2, 4), pp=Span(low=1.0, high=8.0), pp_levels=(2, 4, 8), concurrency=Span(low=1.0, high=64.0),
        isl=Span(low=4000.0, high=4000.0), osl=Span(low=1000.0, high=1000.0),
    )  # fmt: skip
    coefficient = Coefficient(
        system="h200_sxm", backend="vllm", backend_versions=VersionRange(first="0.19.1", last="0.20.0"), model="Qwen/Qwen3-8B",
        precision="fp8", estimate=estimate, domain=domain, positivity_limit_pp=10.079368399158985,
        form_test=FormTest(name="chi-square", statistic=0.5, dof=2, p_value=0.77, level=0.01),
        detectors=(FormTest(name="single point", statistic=1.5, dof=1, p_value=0.3, level=0.01),),
        deviations=(Deviation(tp=2, pp=4, size=-0.07, stderr=0.03, p_value=0.02),), verdict="FIT",
        reasons=("because",), warnings=("näher",), models=("Qwen/Qwen3-8B",),
    )  # fmt: skip
    factor = BalanceFactor(
        system="h200_sxm", backend="vllm", model="Qwen/Qwen3-8B", tp=1, pp=8, isl=4000, osl=1000, concurrency=64, factor=0.7957,
        fill=0.9876, status="assumed", fitted=True,
    )  # fmt: skip
    row = ContestRow(
        backend="vllm", form="log2", scope="partial", balance="mixed", scheme="leave-one-model-out", points=12, predicted=11,
        mape_pct=7.5, mean_abs_error_pp=1.5, max_abs_error_pp=3.25, worst_point="Qwen/Qwen3-8B TP1/PP8: +9.9 %",
        chi_square_2k=3.75, winner=True,
    )  # fmt: skip
    made = CoefficientSet(
        format="calib-coefficients", format_version=1, digest="", created=Created(at="2026-11-30T00:00:00Z", by="somebody"),
        calib_version="0.1.0", reference="model", quantity="output_tokens_per_s", matching="matched", form="log2", formula="f",
        fill_rule="linear", error_floor=0.02, balance_source=BalanceSource(
            name="n", version="v", system="h200_sxm", note="x", step="mixed", partition="vllm"),
        balance_factors=(factor,), coefficients=(coefficient,), pooling="partial", contest=(row,),
        fallback=("model", "backend", "refuse"),
        inputs=(InputFile(campaign="c", path="points.csv", sha256="0" * 64),), supersedes="f" * 64,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes).sealed()


def test_round_trip_with_every_field_filled(tmp_path):
    made = full()
    assert made.save(tmp_path / "c.json") is True
    assert CoefficientSet.load(tmp_path / "c.json") == made


def test_no_field_of_the_full_set_is_left_empty():
    def empties(value, where="$"):
        if isinstance(value, dict):
            return [x for k, v in value.items() for x in empties(v, f"{where}.{k}")]
        if isinstance(value, (list, tuple)):
            return [x for i, v in enumerate(value) for x in empties(v, f"{where}[{i}]")] or ([] if value else [where])
        return [where] if value in (None, "") else []

    assert empties(msgspec.to_builtins(full())) == []


def test_the_digest_is_that_of_the_content_and_not_of_time_or_author():
    assert full(created=Created(at="2030-01-01T00:00:00Z", by="else")).digest == full().digest
    assert full(matching="peak").digest != full().digest


def test_the_digest_is_pinned_so_that_other_implementations_can_check_theirs():
    content = msgspec.to_builtins(full())
    del content["digest"], content["created"]
    by_hand = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert "1e-300" in by_hand
    assert hashlib.sha256(by_hand.encode()).hexdigest() == full().digest


def test_the_same_content_is_not_written_twice_and_other_content_never_replaces_it(tmp_path):
    path = tmp_path / "c.json"
    full().save(path)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert full(created=Created(at="later", by="x")).save(path) is False
    with pytest.raises(CoefficientFileError, match="never overwritten"):
        full(matching="peak").save(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


def test_a_file_that_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path):
    with pytest.raises(OutputError, match=r"cannot be written .* nothing was changed"):
        full().save(tmp_path / "missing" / "c.json")
    assert list(tmp_path.iterdir()) == []


def altered(change) -> bytes:
    document = json.loads(full().to_json())
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(colour="red"), r"unknown field `colour`"),
        (lambda d: d["coefficients"][0].update(colour="red"), r"'\$.coefficients\[0\]'.*unknown field"),
        (lambda d: d["coefficients"][0].pop("verdict"), r"'\$.coefficients\[0\]'.*missing required field `verdict`"),
        (lambda d: d["coefficients"][0].update(verdict="MAYBE"), r"verdict"),
        (lambda d: d["coefficients"][0]["estimate"].update(values=[float("nan")]), r"not a JSON document"),
        (lambda d: d["coefficients"][0]["estimate"].update(values=[None]), r"estimate.values\[0\]"),
        (
            lambda d: d["coefficients"][0]["estimate"].update(values=[0.1, 0.2]),
            r"1 parameters has entries of another number",
        ),
        (lambda d: d["coefficients"][0]["estimate"].update(values=[0.1]), r"'digest'.*the file was altered"),
        (lambda d: d.update(digest="0" * 64), r"'digest'.*the file was altered"),
        (lambda d: d.update(format_version=2), r"'format_version' = 2.*must be 1"),
        (lambda d: d.update(format_version=True), r"'format_version' = True"),
        (lambda d: d.update(format="other"), r"'format' = 'other'"),
        (lambda d: d.clear(), r"'format'"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_field(change, words):
    with pytest.raises(CoefficientFileError, match=words) as error:
        CoefficientSet.from_json(altered(change), file="some/c.json")
    assert str(error.value).startswith("some/c.json: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff", b"[1,2]", b'{"format":', b"null", b"\xef\xbb\xbf{}", b"[" * 100_000]
)
def test_what_is_no_document_at_all_is_an_error(data):
    with pytest.raises(CoefficientFileError):
        CoefficientSet.from_json(data, file="c.json")


def test_a_missing_file_and_a_folder_are_errors(tmp_path):
    with pytest.raises(CoefficientFileError, match="cannot be read"):
        CoefficientSet.load(tmp_path / "none.json")
    with pytest.raises(CoefficientFileError, match="cannot be read"):
        CoefficientSet.load(tmp_path)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_never_sealed(bad):
    made = full()
    (c,) = made.coefficients
    estimate = msgspec.structs.replace(c.estimate, scatter=bad)
    with pytest.raises(CoefficientFileError, match=r"coefficients\[0\].estimate.scatter.*not a finite number"):
        full(coefficients=(msgspec.structs.replace(c, estimate=estimate),))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["balance_factors"][0].update(factor=5.0), "not in \\(0, 1]"),
        (lambda d: d["balance_factors"][0].update(factor=-1.0), "not in \\(0, 1]"),
        (lambda d: d.update(error_floor=-1.0), "error floor -1"),
        (lambda d: d["coefficients"].append(d["coefficients"][0]), "two coefficients have the key"),
        (lambda d: d["coefficients"][0]["domain"]["pp"].update(low=9.0), "range 9 to 8 is empty"),
    ],
)
def test_values_that_cannot_be_are_rejected_whatever_the_digest_says(change, words):
    with pytest.raises(CoefficientFileError, match=words):
        CoefficientSet.from_json(altered(change), file="c.json")


def test_the_shipped_schema_is_that_of_the_types_and_accepts_a_file():
    shipped = json.loads(SCHEMA.read_text())
    assert shipped == json_schema()
    jsonschema.Draft202012Validator.check_schema(shipped)
    jsonschema.validate(json.loads(full().to_json()), shipped)


@pytest.mark.parametrize(
    "change", [lambda d: d.update(colour=1), lambda d: d["coefficients"][0].update(verdict="MAYBE")]
)
def test_the_shipped_schema_rejects_what_loading_rejects(change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(altered(change)), json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize(
    ("first", "last", "version", "covered"),
    [
        ("0.9.1", "0.19.1", "0.10.0", True),  # not in string order
        ("0.9.1", "0.19.1", "0.20.0", False),
        ("1.3.0rc18", "1.3.0rc20", "1.3.0rc19", True),
        ("1.3.0rc18", "1.3.0rc20", "1.3.0", False),
        ("0.19.1", "0.19.1", "0.19.1", True),
        ("0.19.1", "0.19.1", "0.19.1.post1", False),
        ("main-abc", "main-def", "main-b", False),
    ],
)
def test_versions_are_ordered_as_versions(first, last, version, covered):
    assert VersionRange(first=first, last=last).covers(version) is covered


def test_ten_thousand_keys_are_told_apart_and_a_second_one_is_found():
    (c,) = full().coefficients
    many = tuple(msgspec.structs.replace(c, model=f"m{i}") for i in range(10_000))
    assert len(full(coefficients=many).coefficients) == 10_000
    with pytest.raises(ValueError, match="two coefficients have the key h200_sxm, vllm, m7"):
        full(coefficients=(*many, many[7]))


def of_version_0() -> bytes:
    """A document of a made-up older version, in which the floor had another name."""
    document = json.loads(full().to_json())
    document["format_version"] = 0
    document["floor"] = document.pop("error_floor")
    content = {k: v for k, v in document.items() if k not in ("digest", "created")}
    document["digest"] = hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
    return json.dumps(document).encode()


def upgrade_0(document):
    floor = document.pop("floor")
    return document | {"format_version": 1, "error_floor": floor}


def test_an_older_version_is_upgraded_step_by_step_and_keeps_its_digest():
    loaded = CoefficientSet.from_json(of_version_0(), upgrades={0: upgrade_0})
    assert msgspec.structs.replace(loaded, digest="") == msgspec.structs.replace(full(), digest="")
    assert loaded.digest == json.loads(of_version_0())["digest"]


def test_an_older_version_is_checked_before_it_is_upgraded():
    altered_0 = of_version_0().replace(b"0.02", b"0.03")
    with pytest.raises(CoefficientFileError, match="the file was altered"):
        CoefficientSet.from_json(altered_0, upgrades={0: upgrade_0})
    with pytest.raises(CoefficientFileError, match=r"'format_version' = 0.*must be 1"):
        CoefficientSet.from_json(of_version_0())
    with pytest.raises(CoefficientFileError, match="unknown field `floor`"):
        CoefficientSet.from_json(of_version_0(), upgrades={0: lambda d: d | {"format_version": 1}}, file="c.json")
