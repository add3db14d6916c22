"""How commands write where there is no terminal: in a pipe, in a file."""

import json

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
