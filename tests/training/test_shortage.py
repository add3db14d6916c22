"""What a worker that runs out of memory leaves for all that begin again."""

from tfx_perf.training.recovery import shortage
from tfx_perf.training.recovery.shortage import Shortage
from tfx_perf.training.recovery.writers import Writers

TWO = Writers(workers=2, replicas=2)
LEFT = Shortage(worker=1, micro_batches=2, count=1, writers=TWO)


def test_it_is_found_until_it_is_forgotten(tmp_path):
    folder = tmp_path / "training"
    assert shortage.found(folder, TWO) is None
    shortage.leave(folder, LEFT)
    assert shortage.found(folder, TWO) == LEFT
    shortage.forget(folder)
    assert shortage.found(folder, TWO) is None
    assert not list(folder.iterdir())


def test_others_and_other_versions_begin_with_whole_batches(tmp_path):
    shortage.leave(tmp_path, LEFT)
    assert shortage.found(tmp_path, Writers(workers=3, replicas=3)) is None
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("shortage/1", "shortage/0"))
    assert shortage.found(tmp_path, TWO) is None
