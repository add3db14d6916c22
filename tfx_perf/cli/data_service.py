"""`tfx-perf data-service`: the servers of a tf.data service, which read input elsewhere."""

import os
import pathlib
import signal
import socket
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import click

from tfx_perf import errors
from tfx_perf.cli import group, terminal
from tfx_perf.cli.whole_number import WholeNumber

if TYPE_CHECKING:
    from tensorflow.data.experimental import service

_POLL_SECONDS = 1.0
_PORT = WholeNumber(0, 65535)
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON, not text.")


@click.group("data-service", cls=group.Group)
def command() -> None:
    """Runs the servers of a tf.data service, each until it is stopped.

    Workers read, shuffle and parse for InputTuner's candidate `parallel_reader+service`, which is
    tried where the setting `input.service_address` names the dispatcher. They need the files
    under the same names as the training.
    """
    # In a container this is process 1, for which no signal has an effect unless handled. At once,
    # since TF 2.16 would wait for the readers' autotune, which may sleep for a minute.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(*_: Any) -> None:
    try:
        terminal.show_interrupted()
    finally:  # even if nobody reads standard error any more
        os._exit(terminal.EXIT_INTERRUPTED)


@command.command("dispatcher")
@click.option("--port", type=_PORT, default=5050, show_default=True, help="0: any that is free.")
@click.option(
    "--work-dir", type=click.Path(file_okay=False, path_type=pathlib.Path),
    help="Local folder in which a dispatcher that is started again finds what it knew.",
)  # fmt: skip
@_JSON
def dispatcher_command(*, port: int, work_dir: pathlib.Path | None, as_json: bool) -> None:
    """Hands out files to workers, and tells trainings where the workers are."""
    port = _free(port)
    service = _service()
    config = service.DispatcherConfig(
        port=port, work_dir=str(work_dir) if work_dir else None, fault_tolerant_mode=bool(work_dir)
    )
    server = service.DispatchServer(config)
    _serve("Dispatcher", server, address=server.target, as_json=as_json)


@command.command("worker")
@click.option("--dispatcher", "address", metavar="ADDRESS", required=True, help="grpc://HOST:PORT")
@click.option(
    "--host", default="localhost", show_default=True,
    help="By which trainings reach this worker; localhost serves this machine only.",
)  # fmt: skip
@click.option("--port", type=_PORT, default=0, help="By default any that is free.")
@_JSON
def worker_command(*, address: str, host: str, port: int, as_json: bool) -> None:
    """Reads, shuffles and parses; waits until the dispatcher answers."""
    port = _free(port)
    _wait_for_dispatcher(address)
    service = _service()
    config = service.WorkerConfig(
        dispatcher_address=address.removeprefix("grpc://"),
        worker_address=f"{host}:{port}",
        port=port,
    )
    server = service.WorkerServer(config)
    _serve("Worker", server, address=f"grpc://{host}:{port}", as_json=as_json)


def _free(port: int) -> int:
    """Returns the port, or one that is free for 0; gRPC would share one that is served already."""
    try:
        with socket.create_server(("", port)) as probe:
            return probe.getsockname()[1]
    except OSError as error:
        raise errors.UserError(
            f"Expected a port that is free. Received: --port {port} ({error})."
        ) from error


def _service() -> "service":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # else it tells which GPU parts are missing
    warnings.filterwarnings("ignore", category=FutureWarning)  # of Google's clients
    import tensorflow as tf

    return tf.data.experimental.service


def _wait_for_dispatcher(address: str) -> None:
    """Returns when it answers; in Python, so that a signal ends it at any time."""
    from tfx_perf.input.building import dispatcher

    told = False
    while True:
        try:
            return dispatcher.reach(address, seconds=_POLL_SECONDS)
        except ValueError as error:
            raise errors.UserError(
                f"Expected grpc://HOST:PORT of a dispatcher. Received: --dispatcher {address}."
            ) from error
        except OSError:
            if not told:
                terminal.show_progress(f"Waiting for a dispatcher at {address}")
            told = True
            time.sleep(_POLL_SECONDS)


def _serve(kind: str, server: Any, *, address: str, as_json: bool) -> None:
    """Tells the address, and keeps the server, which runs for as long as it is referred to."""
    if as_json:
        terminal.show_json({"address": address})
    else:
        terminal.show(f"{kind} at {address}")
    sys.stdout.flush()
    while server:  # not signal.pause(), which misses a signal that comes right before it
        time.sleep(_POLL_SECONDS)
