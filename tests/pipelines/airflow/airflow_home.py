"""An Airflow home in a folder: its settings, its programs, and what its database says."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class AirflowHome:
    """Runs an Airflow.

    Attributes:
        folder: of the home.
        programs: folder of the environment's programs.
        database: SQLAlchemy's address; None for SQLite.
        executor: name of the executor.
    """

    folder: pathlib.Path
    programs: pathlib.Path
    database: str | None = None
    executor: str = "SequentialExecutor"

    @property
    def dags(self) -> pathlib.Path:
        """The dags folder."""
        return self.folder / "dags"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its programs, without what belongs to the tests' own Python."""
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("AIRFLOW", "PYTHON", "VIRTUAL_ENV", "PYTEST"))
        }
        return {
            **inherited,
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTOR": self.executor,
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__SCHEDULER__DAG_DIR_LIST_INTERVAL": "5",  # also DAGs that come later
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database
            or f"sqlite:///{self.folder / 'airflow.db'}",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "AIRFLOW__SCHEDULER__MIN_FILE_PROCESS_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__PARSING_PROCESSES": "1",
        }

    def prepare(self) -> "AirflowHome":
        """Makes the home and its database."""
        self.dags.mkdir(parents=True)
        self.run("airflow", "db", "migrate")
        return self

    def run(self, *command: str, timeout_seconds: float = 300.0) -> str:
        """Runs a program to its end and returns what it prints."""
        done = subprocess.run(
            [str(self.programs / command[0]), *command[1:]], env=self.variables, cwd=self.folder,
            check=False, capture_output=True, text=True, timeout=timeout_seconds,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    def ask(self, *question: str, timeout_seconds: float = 60.0) -> Any:
        """Returns what `airflow_queries` answers."""
        script = str(pathlib.Path(__file__).with_name("airflow_queries.py"))
        answer = self.run("python", script, *question, timeout_seconds=timeout_seconds)
        return json.loads(answer.splitlines()[-1])

    @contextlib.contextmanager
    def serving(self, *command: str) -> Iterator[None]:
        """Keeps a server running while the context lasts."""
        with (self.folder / f"{command[0]}.log").open("w") as log:
            process = subprocess.Popen(
                [str(self.programs / "airflow"), *command], env=self.variables, cwd=self.folder,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                yield
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def wait_for_run(self, dag: str, *, number: int = 1, timeout_seconds: float = 1000.0) -> str:
        """Waits until so many of a DAG's runs are over; returns the last one's id."""
        run_id = self.ask(
            "wait", dag, str(number), str(timeout_seconds), timeout_seconds=timeout_seconds + 60
        )
        log = (self.folder / "scheduler.log").read_text()
        assert run_id, f"{self.ask('runs', dag)} after {timeout_seconds} s\n{log[-3000:]}"
        return run_id

    def task_log(self, dag: str, run_id: str, task: str) -> str:
        """Returns the logs of all tries of a task."""
        folder = self.folder / "logs" / f"dag_id={dag}" / f"run_id={run_id}" / f"task_id={task}"
        return "".join(path.read_text() for path in sorted(folder.glob("*.log")))
