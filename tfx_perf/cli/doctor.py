"""`tfx-perf doctor`: what is installed, what the machine offers, and what is wrong."""

import dataclasses
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, Literal

import click
from packaging import requirements
from rich import markup, table

from tfx_perf import isolate
from tfx_perf.cli import terminal
from tfx_perf.cli import tfx as tfx_command
from tfx_perf.core import errors, formatting
from tfx_perf.hardware import host, versions

Status = Literal["ok", "warn", "missing", "broken"]

_PACKAGES = ("keras", "numpy", "protobuf")
_TFX_PACKAGES = (
    "apache-beam",
    "ml-metadata",
    "tensorflow-data-validation",
    "tensorflow-model-analysis",
    "tensorflow-transform",
)
_OPTIONAL_PARTS = {"airflow": "apache-airflow", "kfp": "kfp"}
_BFLOAT16_FEATURES = ("amx_bf16", "avx512_bf16", "bf16")
_COLORS = {"ok": "green", "warn": "yellow", "missing": "dim", "broken": "red"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One checked item; without a `required` one tfx-perf cannot work.

    The status `warn` works, but not as well as it could. `remark` has the remedy, if any.
    """

    item: str
    value: str
    status: Status = "ok"
    remark: str = ""
    required: bool = False

    @property
    def fatal(self) -> bool:
        """Whether tfx-perf cannot work because of this."""
        return self.required and self.status in ("missing", "broken")


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="JSON, not a table.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Checks versions, devices, CPU, memory and optional parts.

    The exit code is 1 if tfx-perf cannot work because of a finding, or if that is unknown.
    """
    with terminal.working("Loading TFX and TensorFlow"):
        findings = list(examine())
    fatal = [finding for finding in findings if finding.fatal]
    unknown = [finding for finding in findings if finding.required and finding.status == "warn"]
    if as_json:
        documents = [dataclasses.asdict(finding) for finding in findings]
        terminal.show_json({"works": not (fatal or unknown), "findings": documents})
    else:
        rows = table.Table("item", "value", "status", "remark")
        for finding in findings:
            color = "red" if finding.fatal else _COLORS[finding.status]
            texts = finding.item, finding.value, finding.remark
            item, value, remark = map(markup.escape, texts)
            rows.add_row(item, value, f"[{color}]{finding.status}[/]", remark)
        terminal.show(rows)
        terminal.show(_verdict(fatal, unknown))
    ctx.exit(1 if fatal or unknown else 0)


def _verdict(fatal: Sequence[Finding], unknown: Sequence[Finding]) -> str:
    names = ", ".join(finding.item for finding in fatal or unknown)
    if fatal:
        return f"[red]Does not work: {names}.[/]"
    return f"[yellow]Not known yet: {names}.[/]" if unknown else "Everything required works."


def examine() -> Iterator[Finding]:
    """Yields all findings; the one that loads TFX takes some seconds."""
    yield from software()
    yield from _tools()
    answer, loading = load_tfx()
    yield loading
    yield from _machine(needed_memory_bytes=answer.get("peak_rss_bytes", 0))
    yield _gpu(answer)
    for extra, distribution in _OPTIONAL_PARTS.items():
        yield optional(extra, distribution)


def software() -> Iterator[Finding]:
    """Yields the installed versions, compared with the supported line."""
    python = ".".join(map(str, sys.version_info[:3]))
    line = versions.line_of(python)
    packages: tuple[str, ...] = _PACKAGES
    if line:
        commands = " or ".join(f"`{command}`" for command in versions.install_commands(python))
        remark = f"{commands} installs it in a clone{_wheel_hint()}"
        if versions.has_tfx():
            packages += _TFX_PACKAGES
            yield Finding("supported line", line.name, remark=remark, required=True)
        else:
            yield Finding("TFX", "not installed", "missing", f"pipelines need it: {remark}")
    else:
        yield Finding("supported line", "none for this Python", "broken", required=True)
    for check in versions.check():
        status: Status = "ok" if check.passed else "broken" if check.found else "missing"
        remark = "" if check.passed else f"expected {check.name}{check.expected}"
        yield Finding(check.name, check.found or "not installed", status, remark, required=True)
    for name, version in versions.installed(*packages).items():
        yield Finding(name, version or "not installed", "ok" if version else "missing",
                      "" if version else "see supported line", required=True)  # fmt: skip


def _wheel_hint() -> str:
    """Returns how to adapt the commands to an installed wheel; empty if a clone is installed."""
    shared = pathlib.Path(sysconfig.get_path("data"), "share", "tfx-perf")
    if not shared.is_dir():
        return ""
    return f"; a wheel takes the dot's place, and both files are in {shared}"


def _tools() -> Iterator[Finding]:
    if not versions.has_tfx():
        return
    configured = (sysconfig.get_config_var("CXX") or "c++").split()[0]
    compiler = next(filter(None, map(shutil.which, (configured, "c++", "g++", "clang++"))), None)
    if compiler:
        yield Finding("C++ compiler", compiler)
    else:
        remedy = "installing TFDV on a new machine compiles pyfarmhash; install g++"
        yield Finding("C++ compiler", "none", "warn", remedy)
    uv = _output_of("uv", "--version")
    yield Finding("uv", uv or "none", remark="" if uv else "pip does as well")
    pip = versions.installed("pip")["pip"]
    if pip:
        yield Finding("pip", pip)
    else:
        remedy = "TFX installs module files with it; python -m ensurepip puts it in"
        yield Finding("pip", "none", "warn", remedy)
    if tfx_command.is_repaired():
        yield Finding("tfx command", "repaired")
    else:
        yield Finding("tfx command", "original", "warn", "tfx-perf tfx --install repairs it")


def load_tfx() -> tuple[dict[str, Any], Finding]:
    """Runs `probe` in a child, which a broken installation may abort; returns {} if that failed."""
    item = "loading TFX" if versions.has_tfx() else "loading TensorFlow"
    target, seconds = "tfx_perf.cli.doctor:probe", 300
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        try:
            answer = isolate.run(target, {}, timeout_seconds=seconds, log_path=log)
        except errors.TimedOutError:
            remark = (
                f"no answer after {seconds} s; after an installation files are compiled first, "
                "and other work takes its share: run it again"
            )
            return {}, Finding(item, "not finished", "warn", remark, required=True)
        except errors.ChildError as error:
            causes = [error.cause]
            if isinstance(error, errors.ProcessEndedError):  # its last line may say why
                causes += log.read_text(errors="replace").strip().splitlines()[-1:]
            return {}, Finding(item, "failed", "broken", ": ".join(causes), required=True)
    time_taken = formatting.format_seconds(answer["load_time_seconds"])
    memory = formatting.format_bytes(answer["peak_rss_bytes"])
    return answer, Finding(item, f"{time_taken}, {memory} of memory", required=True)


def probe() -> dict[str, Any]:
    """Loads TFX, if installed; returns the time and memory this takes, and what TensorFlow sees."""
    started = time.perf_counter()
    import tensorflow as tf

    if versions.has_tfx():
        import tfx.v1  # noqa: F401 - that it loads is the question

    load_time_seconds = time.perf_counter() - started
    from tfx_perf.hardware import devices

    build = tf.sysconfig.get_build_info()
    return {
        "load_time_seconds": load_time_seconds,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "gpus": [devices.device_kind(gpu) for gpu in tf.config.list_physical_devices("GPU")],
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
    }


def _machine(*, needed_memory_bytes: int) -> Iterator[Finding]:
    features = host.cpu_features()
    fast_bfloat16 = [name for name in _BFLOAT16_FEATURES if name in features]
    yield Finding("CPU", host.cpu_model())
    yield Finding("CPU cores", str(host.cpu_count()), remark="that this process may use")
    yield Finding("CPU features", " ".join(features) or "unknown")
    yield Finding(
        "bfloat16 on the CPU",
        " ".join(fast_bfloat16) or "none",
        remark="" if fast_bfloat16 else "no bfloat16 instructions, so it brings no speed here",
    )
    yield Finding("memory limit", formatting.format_bytes(host.memory_limit_bytes()))
    free = host.available_memory_bytes()
    # A component may hold TFX in two processes: its own and a child that measures.
    scarce = free < 2 * needed_memory_bytes
    yield Finding("memory free", formatting.format_bytes(free), "warn" if scarce else "ok",
                  "less than two processes with TFX need" if scarce else "")  # fmt: skip
    disk = shutil.disk_usage(os.getcwd()).free
    scarce = disk < 2 * 2**30
    yield Finding("disk free", formatting.format_bytes(disk), "warn" if scarce else "ok",
                  "pipelines write copies of the data and models" if scarce else "")  # fmt: skip


def _gpu(answer: dict[str, Any]) -> Finding:
    driver = _output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    gpus = answer.get("gpus", [])
    if gpus:
        built_for = f"TensorFlow built for CUDA {answer['cuda']}, cuDNN {answer['cudnn']}"
        return Finding("GPU", ", ".join(gpus), remark=f"driver {driver or 'unknown'}; {built_for}")
    if driver:
        remark = "there is a driver, but TensorFlow sees no GPU; install the extra tfx-perf[gpu]"
        return Finding("GPU", f"driver {driver}", "warn", remark)
    return Finding("GPU", "none", remark="training runs on the CPU")


def optional(extra: str, distribution: str) -> Finding:
    """Compares an optional distribution with what the extra of tfx-perf asks for."""
    declared = map(requirements.Requirement, metadata.requires("tfx-perf") or [])
    requirement = next(item for item in declared if item.name == distribution)
    if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
        return Finding(extra, "not available", "missing", f"only with {requirement.marker}")
    version = versions.installed(distribution)[distribution]
    if version is None:
        return Finding(extra, "not installed", "missing", f"optional: extra tfx-perf[{extra}]")
    supported = requirement.specifier.contains(version, prereleases=True)
    remark = "" if supported else f"expected {distribution}{requirement.specifier}"
    return Finding(extra, version, "ok" if supported else "broken", remark)


def _output_of(*command: str) -> str | None:
    """Returns the first line a command writes, or None if it does not exist or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.strip().splitlines()), None)
