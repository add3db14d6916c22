"""The folder at `baseline_uri`: several writers, damaged files, unreachable stores."""

import os
import pathlib
import subprocess
import sys
import uuid

import fsspec
import ledger_cases
import pytest
from gate_runs import run
from ledger_cases import act, ledger, names

from tfx_perf.core import errors
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.ledger_store import LedgerFolder

WRITERS, ENTRIES = 4, 5


@pytest.fixture(params=["local", "url", "memory"])
def uri(request, tmp_path):
    """A folder that does not exist yet."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4()}/run[1]*/baseline"
    path = tmp_path / "run[1]*" / "base line"
    return path.as_uri() if request.param == "url" else str(path)


def files(uri):
    store, folder = fsspec.url_to_fs(uri)
    return sorted(store.ls(folder, detail=False)) if store.exists(folder) else []


def damage(uri, text):
    """Replaces the content of the last file by what `text` makes of it."""
    store, _ = fsspec.url_to_fs(uri)
    last = files(uri)[-1]
    store.pipe_file(last, text(store.cat_file(last)))


def test_added_runs_are_read_in_any_process(uri):
    assert LedgerFolder(uri).read() == Ledger()
    assert files(uri) == []
    LedgerFolder(uri).add(ledger("a"))
    LedgerFolder(uri).add(ledger("a", "b"))
    assert LedgerFolder(uri).read() == ledger("a", "b")


def test_adding_again_writes_nothing(uri):
    LedgerFolder(uri).add(ledger("a", "b"))
    before = files(uri)
    LedgerFolder(uri).add(ledger("a", "b"))
    LedgerFolder(uri).add(Ledger())
    assert files(uri) == before
    assert len(before) == 1


def test_acts_are_kept_beside_the_runs_they_are_about(uri):
    LedgerFolder(uri).add(ledger("a", "b"))
    LedgerFolder(uri).add(Ledger(acts=(act("unbless", "a", 5),)))
    found = LedgerFolder(uri).read()
    assert (names(found.entries), names(found.withdrawn)) == (["b"], ["a"])
    LedgerFolder(uri).add(found.merge(Ledger(acts=(act("bless", "a", 6),))))
    LedgerFolder(uri).prune(run("a"), keep=8)
    assert names(LedgerFolder(uri).read().entries) == ["b", "a"]


def test_files_of_runs_that_no_longer_count_are_removed(uri):
    for minute, name in enumerate("abcdefghij"):
        known = LedgerFolder(uri).read()
        LedgerFolder(uri).add(known.append(run(name, minute), keep=2))
        LedgerFolder(uri).prune(run(name), keep=2)
    assert len(files(uri)) == 7
    LedgerFolder(uri).add(Ledger(acts=(act("unbless", "i", 19),)))
    LedgerFolder(uri).add(Ledger(entries=(run("x", 5), run("y", 20))))
    LedgerFolder(uri).prune(run("y"), keep=2)
    found = LedgerFolder(uri).read().last(2)
    assert (names(found.entries), names(found.withdrawn)) == ([*"abcde", "j", "y"], ["i"])


def test_no_pipeline_removes_the_runs_of_another_nor_the_anchor(uri):
    for minute in range(4):
        for pipeline in ("slow", "quick"):
            entry = run(str(minute), 10 * minute, pipeline=pipeline)
            LedgerFolder(uri).add(Ledger(entries=(entry,)))
    for minute in range(40, 60):
        LedgerFolder(uri).add(Ledger(entries=(run(str(minute), minute, pipeline="quick"),)))
        LedgerFolder(uri).prune(run("", pipeline="quick"), keep=2, pinned="1")
    found = LedgerFolder(uri).read()
    kept = {name: [e.run_id for e in found.entries if e.pipeline == name] for name in
            ("slow", "quick")}  # fmt: skip
    assert kept == {"slow": ["0", "1", "2", "3"], "quick": ["0", "1", "2", "3", "40", "58", "59"]}


def test_concurrent_processes_lose_nothing(tmp_path):
    uri = str(tmp_path / "baseline")
    command = [sys.executable, ledger_cases.__file__, uri]
    here = str(pathlib.Path(__file__).parents[2])
    processes = [
        subprocess.Popen(
            [*command, str(writer), str(ENTRIES)], env={**os.environ, "PYTHONPATH": here}
        )
        for writer in range(WRITERS)
    ]
    assert [process.wait() for process in processes] == [0] * WRITERS
    assert sorted(names(LedgerFolder(uri).read().entries)) == sorted(
        f"{writer}-{number}" for writer in range(WRITERS) for number in range(ENTRIES)
    )
    assert all(path.endswith(".json") for path in files(uri))


@pytest.mark.parametrize(
    "text",
    [
        lambda text: text[: len(text) // 2],
        lambda text: b"",
        lambda text: text.replace(b'"run_id": "a"', b'"run_id": "z"'),
        lambda text: b'{"model": "resnet"}',
        lambda text: text.replace(b"ledger/2", b"ledger/9"),
    ],
)
def test_while_a_file_is_damaged_or_foreign_nothing_is_read_or_written(uri, text):
    LedgerFolder(uri).add(ledger("a"))
    damage(uri, text)
    before = {path: fsspec.url_to_fs(uri)[0].cat_file(path) for path in files(uri)}
    accesses = (
        LedgerFolder(uri).read,
        lambda: LedgerFolder(uri).add(ledger("a", "b")),
        lambda: LedgerFolder(uri).prune(run("a"), keep=1),
    )
    for access in accesses:
        with pytest.raises(errors.UserError, match="Expected.*Received") as caught:
            access()
        assert pathlib.Path(files(uri)[0]).name in str(caught.value)
        assert "\n" not in str(caught.value)
    assert {path: fsspec.url_to_fs(uri)[0].cat_file(path) for path in files(uri)} == before


def test_other_files_and_leftovers_of_a_killed_writer_do_not_matter(tmp_path):
    LedgerFolder(str(tmp_path)).add(ledger("a"))
    (tmp_path / "README.txt").write_text("keep out")
    (tmp_path / ".20260102T000000-0123.json.4711").write_text("{")
    assert LedgerFolder(str(tmp_path)).read() == ledger("a")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    path = tmp_path / "ledger.json"
    ledger("a").write(path)
    with pytest.raises(errors.UserError, match=f"Received: baseline_uri={path}, which is a file"):
        LedgerFolder(str(path)).read()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("nonsense://bucket/folder", "baseline_uri=nonsense://bucket/folder"),
        ("s3://bucket/folder", r"Install the extra tfx-perf\[s3\]"),
        ("gs://bucket/folder", r"Install the extra tfx-perf\[gcs\]"),
    ],
)
def test_a_store_without_its_driver_is_one_clear_line(uri, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(errors.UserError, match=words) as caught:
        LedgerFolder(uri)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("uri", "verb"), [("{}/file/folder", "read"), ("/proc/folder", "written")])
def test_a_folder_that_cannot_be_made_is_one_clear_line(uri, verb, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UserError, match=f"can be {verb}. Received: baseline_uri=") as caught:
        LedgerFolder(uri.format(tmp_path)).add(ledger("a"))
    assert "\n" not in str(caught.value)
