"""The ledger outside of ML Metadata: a folder, local or in an object store."""

import contextlib
from collections.abc import Iterator

from fsspec import core
from fsspec.implementations import local

from tfx_perf import cache_key, errors, storage
from tfx_perf.gate.act import Act
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run


class Mirror:
    """A folder of ledgers whose merge is the ledger.

    Each writer adds a file of its own, with what the folder does not hold yet, and never
    changes one. So writers cannot overwrite each other, on any store and without a lock:
    an object store needs no more than single puts and a listing that shows what was put,
    which S3 and Google Cloud Storage both promise. A local file is written aside and renamed.
    Files whose runs are all too old to count are removed by later writers.

    Every file has a checksum. As long as the folder holds one `*.json` that is damaged or no
    ledger, it is neither read nor written, so that no run is judged by half a baseline.

    Example:
        >>> Mirror("gs://bucket/taxi/baseline").read().comparable(run)
    """

    def __init__(self, uri: str) -> None:
        """Finds the driver; the store itself is not touched yet.

        Args:
            uri: the folder: a local path, or a URL that fsspec knows, e.g. `gs://` or `s3://`.
                It need not exist.

        Raises:
            UserError: an unknown kind of store, or one whose driver is not installed.
        """
        self._uri = uri
        self._store = storage.path(uri, name="baseline_uri").fs
        self._folder = core.strip_protocol(uri)
        self._parts: dict[str, Ledger] = {}  # by path; a file never changes

    def read(self) -> Ledger:
        """Returns the ledger; empty if the folder does not exist or is empty.

        Raises:
            UserError: the store cannot be read, or holds a file that is damaged or no ledger.
        """
        return Ledger().merge(*self._files().values())

    def add(self, ledger: Ledger) -> None:
        """Writes what the folder does not hold yet.

        Args:
            ledger: the runs and acts to add.

        Raises:
            UserError: the store cannot be read or written; the folder is as it was.
        """
        news = ledger.beyond(self.read())
        if news != Ledger():
            self._put(news)

    def prune(self, run: Run, *, keep: int, pinned: str | None = None) -> None:
        """Removes files whose runs are all of one node, and too old to count.

        Args:
            run: one of the node; what others keep is for their own gates to say.
            keep: see `Ledger.last`.
            pinned: see `Ledger.last`.

        Raises:
            UserError: the store cannot be read or written.
        """
        files = self._files()
        counting = Ledger().merge(*files.values()).last(keep, pinned=pinned)
        for path, part in files.items():
            is_own = all(one.is_of_node_of(run) for one in part.runs)
            if is_own and not part.acts and not any(map(counting.holds, part.runs)):
                with self._access("written"), contextlib.suppress(FileNotFoundError):
                    self._store.rm_file(path)  # unless another writer was quicker

    def _files(self) -> dict[str, Ledger]:
        with self._access("read"):
            if self._store.isfile(self._folder):
                raise errors.UserError(
                    f"Expected baseline_uri to be a folder. Received: baseline_uri={self._uri}, "
                    "which is a file; name its folder, or one that does not exist yet."
                )
            try:
                found = self._store.ls(self._folder, detail=False)
            except FileNotFoundError:
                return {}
            paths = sorted(path for path in found if path.endswith(".json"))
            new = [path for path in paths if path not in self._parts]
            # All at a time. Unlike cat(), it takes no path with a * or [ for a pattern.
            texts = self._store.cat_ranges(new, None, None, on_error="return")
            for path, text in zip(new, texts, strict=True):
                if isinstance(text, FileNotFoundError):
                    continue  # too old, and removed since it was listed
                if isinstance(text, Exception):
                    raise text
                source = self._store.unstrip_protocol(path)
                self._parts[path] = Ledger.from_text(text, source=source)
        return {path: self._parts[path] for path in paths if path in self._parts}

    def _put(self, ledger: Ledger) -> None:
        text = ledger.to_text().encode()
        items: tuple[Run | Act, ...] = (*ledger.runs, *ledger.acts)
        newest = max(item.time for item in items)
        # The same content has the same name, so that a repeated write changes nothing.
        name = f"{newest:%Y%m%dT%H%M%S}-{cache_key.digest(text)}.json"
        with self._access("written"):
            if isinstance(self._store, local.LocalFileSystem):
                folder = storage.make_folder(self._folder)
                storage.write_bytes(folder / name, text, is_durable=True)
            else:
                self._store.pipe_file(f"{self._folder}/{name}", text)

    @contextlib.contextmanager
    def _access(self, verb: str) -> Iterator[None]:
        """Makes one line of whatever a driver raises: each has exceptions of its own."""
        try:
            yield
        except errors.UserError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise errors.UserError(
                f"Expected a baseline_uri that can be {verb}. "
                f"Received: baseline_uri={self._uri} ({reason})."
            ) from error
