"""Files by URI, on a disk and in fsspec's store in memory; servers are in tests/object_stores."""

import datetime
import pathlib
import resource
import uuid

import pytest

from tfx_perf.core import errors, storage


@pytest.fixture(params=["local", "file", "memory"])
def uri(request, tmp_path):
    return {
        "local": str(tmp_path / "new"),
        "file": f"file://{tmp_path}/new",
        "memory": f"memory://{uuid.uuid4().hex}/new",
    }[request.param]


def test_written_content_is_read_back(uri):
    file = storage.make_folder(uri) / "a.txt"
    assert not storage.exists(file)
    storage.write_text(file, "Größe")
    assert storage.read_bytes(f"{uri}/a.txt") == "Größe".encode()
    assert storage.exists(uri) and storage.exists(file)
    assert storage.is_file(file) and not storage.is_file(uri)
    age = datetime.datetime.now(datetime.timezone.utc) - storage.modified_time(file)
    assert abs(age) < datetime.timedelta(minutes=10)


def test_a_missing_file_is_an_os_error(uri):
    with pytest.raises(OSError, match="a.txt"):
        storage.read_bytes(f"{uri}/a.txt")


def test_a_local_folder_ends_up_at_the_uri_also_after_an_error(uri):
    with pytest.raises(RuntimeError), storage.local_folder(uri) as folder:
        assert isinstance(folder, pathlib.Path) and folder.is_dir()
        (folder / "logs").mkdir()
        (folder / "logs" / "trial.log").write_text("so far")
        raise RuntimeError
    assert storage.read_bytes(f"{uri}/logs/trial.log") == b"so far"


def test_a_folder_is_copied_with_everything_below(uri, tmp_path):
    (tmp_path / "from" / "below").mkdir(parents=True)
    (tmp_path / "from" / "below" / "file").write_bytes(b"content")
    storage.copy_tree(tmp_path / "from", storage.path(uri))
    assert storage.read_bytes(f"{uri}/below/file") == b"content"
    storage.copy_tree(storage.path(uri), storage.path(str(tmp_path / "back")))
    assert (tmp_path / "back" / "below" / "file").read_bytes() == b"content"


def test_an_unknown_store_is_refused_in_one_line():
    with pytest.raises(errors.UserError, match=r"Received: uri=foo://bucket .*Correct it\.$"):
        storage.path("foo://bucket")


@pytest.mark.parametrize("uri", ["gs:/bucket/folder", "hdfs://host/folder", "dir:///tmp"])
def test_any_error_of_a_driver_is_one_line(uri):
    with pytest.raises(errors.UserError, match=rf"Received: baseline_uri={uri}") as caught:
        storage.path(uri, name="baseline_uri")
    assert "\n" not in str(caught.value)


def test_a_location_without_a_plain_path_is_remote():
    assert not storage.is_remote("/a/b") and not storage.is_remote("a/b")
    assert storage.is_remote("gs://a/b") and storage.is_remote("file:///a/b")


def test_a_file_stays_where_there_is_no_room_for_the_new_one(tmp_path):
    file = tmp_path / "metrics.json"
    storage.write_text(file, "the old one")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*metrics.json'"):
            storage.write_text(file, "the new one" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["the old one"]


def test_what_is_no_file_is_written_into(tmp_path):
    storage.write_text("/dev/null", "nothing")
    assert pathlib.Path("/dev/null").is_char_device()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    storage.write_text(tmp_path / "link", "by a link")
    assert (tmp_path / "file").read_text() == "by a link"
    assert (tmp_path / "link").is_symlink()


def test_a_file_keeps_its_permissions(tmp_path):
    file = tmp_path / "metrics.json"
    storage.write_text(file, "the old one")
    file.chmod(0o640)
    storage.write_text(file, "the new one")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("the new one", 0o640)
