"""Talks to a server through `kfp.Client`: address, retries, errors in one line."""

import contextlib
import io
import logging
import os
import pathlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import urllib3

from tfx_perf.core import errors

ENDPOINT_VARIABLE = "KF_PIPELINES_ENDPOINT"

_UNAUTHORIZED = (401, 403)
_CONFLICT = 409
_NOT_FOUND = 404
# The server has not started to process the request.
_NOT_BEGUN = (429, 503)
# The server may have processed the request, and only the answer was lost.
_UNKNOWN = (500, 502, 504)
_PAUSE_SECONDS = 1.0


class _Retry(urllib3.Retry):
    """Retries requests that change nothing; those that change something only if not begun."""

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        del has_retry_after
        return status_code in _NOT_BEGUN or (method == "GET" and status_code in _UNKNOWN)


class Connection:
    """A `kfp.Client`, as `client`, whose calls are retried if that does no harm."""

    def __init__(
        self, host: str | None, *, attempts: int, client_options: Mapping[str, Any]
    ) -> None:
        self._host = host or os.environ.get(ENDPOINT_VARIABLE)
        if not self._host and not _has_cluster():
            raise errors.UserError(
                "Expected the address of a Kubeflow Pipelines server. Received: no host, no "
                f"{ENDPOINT_VARIABLE}, no cluster around and no kube config."
            )
        if self._host and "://" not in self._host:
            self._host = f"https://{self._host}"
        # Its warnings about each retry are not helpful.
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
        retries = _Retry(
            attempts - 1, allowed_methods={"GET"}, backoff_factor=_PAUSE_SECONDS,
            raise_on_status=False, respect_retry_after_header=False,  # it may be an hour
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            base: Any = _import_kfp().Client

            class Client(base):
                """Asks for the server's health once; the retries are ours."""

                def _load_config(self, *arguments: Any, **keywords: Any) -> Any:
                    config = super()._load_config(*arguments, **keywords)
                    config.retries = retries
                    return config

                def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:
                    del sleep_duration
                    return self._healthz_api.healthz_service_get_healthz()

            self.client = self.call(lambda: Client(host=self._host, **client_options))
        # The client itself checks only if it has no namespace.
        self.call(self.client.get_kfp_healthz)

    @property
    def ui_address(self) -> str:
        """Address of the UI."""
        return self.client._get_url_prefix().rstrip("/")  # as kfp prints it in its own links

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Calls a function of the client; a `UserError` says why the server refuses it."""
        import kfp_server_api

        try:
            with contextlib.redirect_stdout(io.StringIO()):  # kfp prints links
                return function(*arguments, **keywords)
        except kfp_server_api.ApiException as error:
            raise errors.UserError(self._explained(error)) from error
        except urllib3.exceptions.HTTPError as error:
            reason = " ".join(str(getattr(error, "reason", error)).split())
            raise errors.UserError(
                "Expected a Kubeflow Pipelines server that answers. Received: "
                f"host={self._host or 'of the kube config'} ({reason})."
            ) from error

    def _explained(self, error: Any) -> str:
        message = errors.of_server(error)
        where = f"host={self._host or 'of the kube config'}"
        if error.status in _UNAUTHORIZED:
            return (
                f"Expected credentials that the server accepts. Received: {where} answers "
                f"{error.status} ({message}). Give a token or cookies, as for kfp.Client."
            )
        if error.status == _CONFLICT:
            return f"Expected a name that is not taken. Received: {message}."
        if error.status == _NOT_FOUND:
            return f"Expected something that the server has. Received: {where}: {message}."
        return f"Expected the server to accept this. Received: {error.status} {message}."


def _has_cluster() -> bool:
    kube_config = os.environ.get("KUBECONFIG") or pathlib.Path("~/.kube/config").expanduser()
    return "KUBERNETES_SERVICE_HOST" in os.environ or pathlib.Path(kube_config).exists()


def _import_kfp() -> Any:
    try:
        import kfp
    except ImportError as error:
        raise errors.UserError(
            "Expected kfp to be installed. Received: no module kfp. "
            "Install it with pip install 'tfx-perf[kfp]'."
        ) from error
    return kfp
