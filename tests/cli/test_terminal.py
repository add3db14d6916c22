"""How commands write where there is no terminal: in a pipe, in a file."""

import json
import re
import time

from rich import table

from tfx_perf.cli import terminal


def test_a_wide_table_is_not_cut_in_a_pipe(capsys):
    rows = table.Table(*(f"column {number}" for number in range(8)))
    rows.add_row(*(f"{number}.123456789" for number in range(8)))
    terminal.show(rows)
    out = capsys.readouterr().out
    assert all(f"{number}.123456789" in out for number in range(8))


def test_json_keeps_the_characters_that_it_has(capsys):
    value = {"größe": [1, None]}
    terminal.show_json(value)
    out = capsys.readouterr().out
    assert "größe" in out
    assert json.loads(out) == value


def test_what_is_done_is_said_now_and_then_but_not_if_it_is_quick(tmp_path, monkeypatch):
    path = tmp_path / "file"
    with path.open("w") as file, terminal.working("looking", file=file):
        pass
    assert path.read_text() == ""
    monkeypatch.setattr(terminal, "_STATUS_SECONDS", 0.01)
    with path.open("w", buffering=1) as file, terminal.working("looking", file=file):
        while not path.read_text().endswith("\n"):
            time.sleep(0.01)
    assert re.fullmatch(r"(looking, \d+ s\n)+", path.read_text())


def test_progress_is_no_output(capsys):
    terminal.show_progress("half of it")
    assert capsys.readouterr() == ("", "half of it\n")
