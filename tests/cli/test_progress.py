"""What the terminal shows of a pipeline that another process runs."""

import time

from tfx_perf.cli import progress


def test_lines_are_shown_as_they_come_and_pulses_only_as_the_status(tmp_path, capfd):
    path, shown = tmp_path / "progress.txt", ""
    with progress.following(path), path.open("w", buffering=1) as file:
        file.write("  Choose                   0.1 s  from cache\n")
        file.write("  Work                     1.0 s  ... [half] done\n    remark: [all] was")
        deadline = time.monotonic() + 30
        while "from cache" not in shown and time.monotonic() < deadline:
            time.sleep(0.05)
            shown += capfd.readouterr().err
        assert "from cache" in shown
        assert "remark" not in shown  # it is not complete
        file.write(" well\n")
    shown += capfd.readouterr().err
    assert "    remark: [all] was well\n" in shown
    assert "..." not in shown
