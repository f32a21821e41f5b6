"""The registry: released and withdrawn files, appended and never changed; what a prediction service loads from it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import jsonschema
import msgspec
import pytest

import calib
from calib import errors
from calib.coefficients.file import CoefficientSet, json_schema
from calib.coefficients.registry import FILE_NAME, SHIPPED, Registry
from calib.coefficients.releasing import gates, release, withdraw

POINT = {
    "model": "Qwen/Qwen3-8B", "system": "h200_sxm", "backend": "vllm", "backend_version": "0.19.1",
    "tp": 2, "pp": 4, "isl": 4000, "osl": 1000,
}  # fmt: skip


def other(c: CoefficientSet, **changes) -> CoefficientSet:
    """The same kind of set with other content."""
    return msgspec.structs.replace(c, **({"calib_version": "another", "supersedes": None} | changes)).sealed()


def with_verdict(c: CoefficientSet, verdict: str, model: str | None = "Qwen/Qwen3-8B") -> CoefficientSet:
    changed = tuple(
        msgspec.structs.replace(x, verdict=verdict, reasons=("because",)) if x.model == model else x
        for x in c.coefficients
    )
    return other(c, coefficients=changed)


def accepted(c: CoefficientSet) -> tuple[str, ...]:
    return tuple(x.model or x.backend for x in c.coefficients if x.verdict == "REFUSED")


def put(c: CoefficientSet, folder, why="a test"):
    return release(c, folder, why=why, leave_out=accepted(c))


def test_a_pool_of_one_model_stays_refused_and_hinders_no_release(tmp_path, simulated):
    from calib.workflow import calibrate

    made = calibrate(simulated({"m": 0.2})).coefficients
    assert {c.model: c.verdict for c in made.coefficients} == {"m": "FIT", None: "REFUSED"}
    entry, _ = release(made, tmp_path / "registry", why="x")
    assert entry.left_out == ()
    with pytest.raises(errors.RefusedCoefficientError, match="only one model could be fitted"):
        calib.Predictor(made).factor(
            {"model": "other", "system": "h200_sxm", "backend": "vllm", "backend_version": "0.19.1", "tp": 2, "pp": 4,
             "isl": 1000, "osl": 100, "concurrency": 64, "balance_factor": 0.9}
        )  # fmt: skip


def test_a_file_of_the_notebooks_way_is_the_commands_file_and_can_be_released(tmp_path, calibrated):
    by_hand = calib.coefficient_set(calib.fit(calib.decompose(calib.load_campaign("h200-vllm-pp"))))
    assert by_hand.digest == calibrated("h200-vllm-pp").coefficients.digest
    release(by_hand, tmp_path / "registry", why="x")


def test_a_release_is_a_copy_with_an_entry_that_says_who_when_why_and_which_gates(peak_set, tmp_path, monkeypatch):
    monkeypatch.setenv("CALIB_USER", "somebody")
    candidate = other(peak_set)
    entry, comparison = release(candidate, tmp_path / "registry", why="first figures")
    assert (entry.by, entry.why, entry.candidate, comparison) == ("somebody", "first figures", candidate.digest, None)
    assert entry.at.endswith("Z")
    assert all(g.passed for g in entry.gates)
    assert {g.name for g in entry.gates} >= {"no refused coefficient", "left-out error of vllm", "inputs stated"}
    registry = Registry.open(tmp_path / "registry")
    assert registry.entries == (entry,)
    assert registry.load(entry) == candidate
    assert sorted(p.name for p in Path(registry.folder).iterdir()) == [entry.file, FILE_NAME]


def test_a_second_release_supersedes_the_first_and_says_what_moved(peak_set, tmp_path):
    first, _ = put(other(peak_set), tmp_path)
    second, comparison = put(other(peak_set, calib_version="newer"), tmp_path)
    assert second.supersedes == first.digest
    assert second.candidate != second.digest
    assert comparison is not None
    assert comparison.largest_z == 0.0
    registry = Registry.open(tmp_path)
    assert registry.load(second).supersedes == first.digest
    assert [e.digest for e in registry.current] == [second.digest]


def test_another_reference_or_matching_supersedes_nothing(peak_set, matched_set, tmp_path):
    put(other(peak_set), tmp_path)
    entry, _ = put(other(matched_set), tmp_path)
    assert entry.supersedes is None
    assert len(Registry.open(tmp_path).current) == 2


def test_a_refused_coefficient_is_not_released_unless_it_is_named_and_then_stays_refused(peak_set, tmp_path):
    refused = with_verdict(peak_set, "REFUSED")
    with pytest.raises(errors.GateFailedError, match=r"1 refused \(Qwen/Qwen3-8B\).*--leave-out"):
        release(refused, tmp_path, why="x")
    assert list(tmp_path.iterdir()) == []
    entry, _ = release(refused, tmp_path, why="x", leave_out=["Qwen/Qwen3-8B"])
    assert entry.left_out == ("Qwen/Qwen3-8B",)
    with pytest.raises(errors.RefusedCoefficientError, match="because"):  # and no quiet fall-back to the pool
        calib.Predictor.load(registry=tmp_path).factor(POINT)


def test_naming_a_model_that_is_not_refused_is_an_error(peak_set, tmp_path):
    with pytest.raises(errors.UsageError, match="'Qwen/Qwen3-8B': is not refused"):
        release(other(peak_set), tmp_path, why="x", leave_out=["Qwen/Qwen3-8B"])


def test_a_set_of_which_nothing_is_left_is_not_released(peak_set, tmp_path):
    every = other(
        peak_set, coefficients=tuple(msgspec.structs.replace(x, verdict="REFUSED") for x in peak_set.coefficients)
    )
    with pytest.raises(errors.GateFailedError, match="'something to apply': found 0 coefficients of models"):
        release(every, tmp_path, why="x", leave_out=accepted(every))


def test_a_failing_error_gate_and_an_unknown_error_are_not_released(peak_set, tmp_path):
    with pytest.raises(
        errors.GateFailedError, match=r"left-out error of vllm'.* percentage points, the limit is 0.01 "
    ):
        release(other(peak_set), tmp_path, why="x", max_error_pp=0.01)
    with pytest.raises(errors.GateFailedError, match="found not known"):
        release(other(peak_set, contest=()), tmp_path, why="x")
    assert [g.passed for g in gates(other(peak_set, inputs=()))][-1] is False


@pytest.mark.parametrize("why", ["", "  \n"])
def test_a_release_and_a_withdrawal_need_a_reason(peak_set, tmp_path, why):
    with pytest.raises(errors.RegistryError, match="needs a reason"):
        release(other(peak_set), tmp_path, why=why)
    entry, _ = put(other(peak_set), tmp_path)
    with pytest.raises(errors.RegistryError, match="needs a reason"):
        withdraw(tmp_path, entry.digest, why)


def test_the_same_candidate_is_not_released_twice(peak_set, tmp_path):
    candidate = other(peak_set)
    put(candidate, tmp_path)
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(errors.RegistryError, match="was released already at"):
        put(candidate, tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_withdrawn_file_is_an_error_that_says_why_wherever_it_lies(peak_set, tmp_path):
    first, _ = put(other(peak_set), tmp_path / "r")
    candidate = other(peak_set, calib_version="newer")
    second, _ = put(candidate, tmp_path / "r")
    withdraw(tmp_path / "r", second.digest[:10], "the baseline ran with another driver")
    words = r"was withdrawn at .* by .*: the baseline ran with another driver"
    with pytest.raises(errors.WithdrawnError, match=words):
        calib.Predictor.load(tmp_path / "r" / second.file)
    candidate.save(tmp_path / "elsewhere.json")  # the candidate it was made from is the same file to the registry
    assert calib.Predictor.load(tmp_path / "elsewhere.json")
    with pytest.raises(errors.WithdrawnError, match=words):
        calib.Predictor.load(tmp_path / "elsewhere.json", registry=tmp_path / "r")
    # What it superseded stands again, and is what is loaded now.
    assert calib.Predictor.load(registry=tmp_path / "r").coefficients.digest == first.digest
    with pytest.raises(errors.RegistryError, match="was withdrawn already"):
        withdraw(tmp_path / "r", second.digest, "again")
    with pytest.raises(errors.RegistryError, match="was released already and withdrawn"):
        put(candidate, tmp_path / "r")


@pytest.mark.parametrize("digest", ["0" * 64, ""])
def test_withdrawing_what_is_not_released_lists_what_is(peak_set, tmp_path, digest):
    entry, _ = put(other(peak_set), tmp_path)
    with pytest.raises(errors.RegistryError, match=entry.digest[:12]):
        withdraw(tmp_path, digest, "x")


def test_a_torn_last_line_is_reported_and_the_next_entry_sets_it_aside(peak_set, tmp_path):
    entry, _ = put(other(peak_set), tmp_path)
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"format":"calib-regi')
    with pytest.raises(errors.RegistryError, match=r"registry.jsonl: ends in 21 bytes of a torn line"):
        Registry.open(tmp_path)
    with pytest.raises(errors.RegistryError, match="torn"):
        calib.Predictor.load(tmp_path / entry.file)  # the torn line may be its withdrawal
    gone = withdraw(tmp_path, entry.digest, "wrong")
    assert gone.torn == '{"format":"calib-regi'
    assert path.read_bytes().startswith(whole)
    assert Registry.open(tmp_path).entries == (entry, gone)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [lines[0].replace(b'"why":"a test"', b'"why":"other"'), lines[1]], "line 2 does not follow"),
        (lambda lines: [lines[1]], "line 1 does not follow"),
        (lambda lines: [lines[0], b'{"format":"calib-registry"}'], "line 2 is not an entry"),
        (lambda lines: [b"\xff\x00", lines[1]], "line 1 is not an entry"),
        (lambda lines: [b"", *lines], "line 1 is not an entry"),
    ],
)
def test_an_altered_registry_is_an_error(peak_set, tmp_path, change, words):
    put(other(peak_set), tmp_path)
    put(other(peak_set, calib_version="newer"), tmp_path)
    path = tmp_path / FILE_NAME
    path.write_bytes(b"\n".join(change(path.read_bytes().splitlines())) + b"\n")
    with pytest.raises(errors.RegistryError, match=words):
        Registry.open(tmp_path)


def test_a_released_file_that_was_swapped_is_an_error(peak_set, matched_set, tmp_path):
    entry, _ = put(other(peak_set), tmp_path)
    (tmp_path / entry.file).write_bytes(matched_set.to_json())
    with pytest.raises(errors.RegistryError, match="is not the file that was released"):
        calib.Predictor.load(registry=tmp_path)


def test_two_jobs_at_once_lose_no_entry(peak_set, tmp_path):
    problems = []

    def one(i: int) -> None:
        for _ in range(50):
            try:
                put(other(peak_set, calib_version=f"v{i}"), tmp_path)
            except errors.RegistryError:  # the other one was faster
                continue
            return
        problems.append(i)

    jobs = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert problems == []
    assert len(Registry.open(tmp_path).releases) == 4


def test_a_registry_that_cannot_be_written_is_one_sentence(peak_set, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(errors.OutputError, match="cannot be made"):
        put(other(peak_set), tmp_path / "file" / "registry")


# Loading without a path


def test_the_newest_released_file_that_covers_the_question_is_loaded(peak_set, matched_set, tmp_path):
    peak, _ = put(other(peak_set), tmp_path)
    matched, _ = put(other(matched_set), tmp_path)
    load = calib.Predictor.load
    assert load(registry=tmp_path).coefficients.digest == matched.digest
    assert load(registry=tmp_path, points=POINT).coefficients.digest == peak.digest  # no concurrency is stated
    assert load(registry=tmp_path, points=POINT | {"concurrency": 8}).coefficients.digest == matched.digest
    assert load(registry=tmp_path, points=POINT).source.endswith(peak.file)


def test_a_question_nothing_covers_lists_what_there_is(peak_set, tmp_path):
    entry, _ = put(other(peak_set), tmp_path)
    with pytest.raises(errors.NothingReleasedError, match=rf"{entry.digest[:12]}.*sglang"):
        calib.Predictor.load(registry=tmp_path, points=POINT | {"backend": "sglang"})
    with pytest.raises(errors.NothingReleasedError, match=rf"{entry.digest[:12]} has reference 'baseline'"):
        calib.Predictor.load(registry=tmp_path, reference="model")
    with pytest.raises(errors.NothingReleasedError, match="nothing is released"):
        calib.Predictor.load(registry=tmp_path / "none")
    with pytest.raises(errors.PointError, match="'pp'"):  # no file would help there
        calib.Predictor.load(registry=tmp_path, points=POINT | {"pp": 0})


def test_a_superseded_file_is_never_fallen_back_to(peak_set, tmp_path):
    """What replaced it refuses the model: the older file's number is what the newer one knows to be wrong."""
    put(other(peak_set), tmp_path)
    put(with_verdict(peak_set, "REFUSED"), tmp_path)
    with pytest.raises(errors.NothingReleasedError, match="is refused"):
        calib.Predictor.load(registry=tmp_path, points=POINT)


# The shipped releases


def test_every_shipped_release_can_still_be_read_and_evaluated():
    registry = Registry.open(SHIPPED)
    assert registry.releases
    for entry in registry.releases:
        c = registry.load(entry)
        assert c.content_digest() == entry.digest
        assert calib.Predictor(c)
        jsonschema.validate(json.loads(c.to_json()), json_schema())
    assert {p.name for p in Path(SHIPPED).glob("*.json")} == {e.file for e in registry.releases}


def test_without_a_path_and_a_registry_the_shipped_ones_answer():
    predictor = calib.Predictor.load(points=POINT)
    assert 0 < predictor.factor(POINT).value[0] < 1
    assert predictor.coefficients.reference == "baseline"
