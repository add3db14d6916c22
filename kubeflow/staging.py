"""Where the launcher puts what lies in an object store.

The launcher of Kubeflow Pipelines downloads inputs to a local folder, and uploads outputs from
one, named after the URI (`LocalPathForURI` in backend/src/v2/component/launcher_v2.go). TFX
writes to URIs itself, and knows neither minio:// nor s3://.
"""

import pathlib
from collections.abc import Callable
from typing import Any

_FOLDERS = {"minio": "minio", "s3": "s3", "gs": "gcs"}
_SCHEMES = {folder: scheme for scheme, folder in _FOLDERS.items()}


class Staging:
    """Translates between URIs of object stores and the launcher's folders, both ways.

    Args:
        root: folder that the launcher's folders are in; `/` in a container.
    """

    def __init__(self, root: pathlib.Path = pathlib.Path("/")) -> None:
        self._root = root

    def path(self, uri: str) -> str:
        """Returns the local path of a URI; of another store, or a path, as it is."""
        scheme, separator, rest = uri.partition("://")
        if not separator or scheme not in _FOLDERS:
            return uri
        return str(self._root / _FOLDERS[scheme] / rest)

    def uri(self, path: str) -> str:
        """Returns the URI that a local path stands for; another path as it is."""
        if not path.startswith("/"):
            return path
        try:
            folder, *rest = pathlib.Path(path).relative_to(self._root).parts
        except ValueError:  # not below the root, or the root itself
            return path
        if folder not in _SCHEMES or not rest:
            return path
        return f"{_SCHEMES[folder]}://{'/'.join(rest)}"

    def staged(self, value: Any) -> Any:
        """Returns a JSON value with local paths for every URI in it."""
        return _mapped(value, self.path)

    def restored(self, value: Any) -> Any:
        """Returns a JSON value with URIs for every local path in it."""
        return _mapped(value, self.uri)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    return value
