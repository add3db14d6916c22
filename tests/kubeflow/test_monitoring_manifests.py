"""The manifests for Prometheus: they find what the compiler labels, and ask for what is served."""

import json
import pathlib
import re
import shutil

import pytest
import yaml
from kubeflow_pipelines import compiled, four_components
from prometheus_client.parser import text_string_to_metric_families

from tests import processes
from tests.training import script_forks
from tfx_perf.config import PerfConfig
from tfx_perf.config import gate as gate_settings

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "kubeflow" / "manifests" / "monitoring"
MONITOR, ALERTS, KUSTOMIZATION = (
    yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    for name in ("pod_monitor", "alerts", "kustomization")
)
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
RULES = {rule["alert"]: rule for group in ALERTS["spec"]["groups"] for rule in group["rules"]}
EXPRESSIONS = {
    **{name: rule["expr"] for name, rule in RULES.items()},
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    },
}


def snippets():
    """Returns the settings that docs/reliability.md shows, by their outer key."""
    text = (ROOT / "docs" / "reliability.md").read_text()
    found = {}
    for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        found |= yaml.safe_load(each)
    return found


@pytest.fixture(scope="module")
def served():
    """Returns the names and labels of a real scrape, of a training over two replicas."""
    done = script_forks.run(pathlib.Path(__file__).with_name("scraped_training.py"))
    assert done.returncode == 0, done.stderr
    samples = [each for f in text_string_to_metric_families(done.stdout) for each in f.samples]
    return {sample.name: set(sample.labels) for sample in samples}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_requested_metrics_are_served(name, served):
    asked = set(re.findall(r"tfx_perf_\w+", EXPRESSIONS[name]))
    assert asked
    assert asked <= set(served)


def test_labels_that_are_shown_are_served(served):
    known = set().union(*served.values()) | {"pod"}  # the Operator adds that
    texts = [target["legendFormat"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    assert set(re.findall(r"{{(\w+)}}", " ".join(texts))) <= known
    shown = json.dumps([rule["annotations"] for rule in RULES.values()])
    assert set(re.findall(r"\$labels\.(\w+)", shown)) == {"pod"}


def test_the_page_names_everything_that_is_served(served):
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert set(re.findall(r"`(tfx_perf_\w+)`", page)) == set(served)


def test_the_pod_monitor_finds_pods_that_the_compiler_labels(tmp_path):
    found = snippets()
    _, platform = compiled(four_components(), tmp_path, nodes=found["nodes"])
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    labels = {name: config["podMetadata"]["labels"] for name, config in executors.items()}
    assert labels == {"exec-optimized-trainer": MONITOR["spec"]["selector"]["matchLabels"]}


def test_the_port_is_the_same_everywhere():
    found = snippets()
    port = PerfConfig.from_dict(found["tensorflow_optimization"]).monitoring.metrics_port
    (endpoint,) = MONITOR["spec"]["podMetricsEndpoints"]
    addresses = [
        rule["replacement"]
        for rule in endpoint["relabelings"]
        if rule.get("targetLabel") == "__address__"
    ]
    assert addresses == [f"$1:{port}", f"[$1]:{port}"]
    annotations = found["nodes"]["OptimizedTrainer"]["pod_annotations"]
    assert annotations["prometheus.io/port"] == str(port)
    assert annotations["prometheus.io/path"] == endpoint["path"]


def test_limits_are_those_of_the_gate():
    limit = gate_settings.DEFAULT_RULES["peak_memory_share_ratio"].max
    rule = RULES["TfxPerfMemoryNearlyFull"]
    assert rule["expr"] == f"tfx_perf_peak_memory_share_ratio > {limit}"


def test_the_folder_is_a_separate_one():
    names = KUSTOMIZATION["resources"] + KUSTOMIZATION["configMapGenerator"][0]["files"]
    assert {*names, "kustomization.yaml"} == {path.name for path in FOLDER.iterdir()}
    outer = yaml.safe_load((FOLDER.parent / "kustomization.yaml").read_text())
    assert FOLDER.name not in outer["resources"]


@pytest.fixture
def promtool():
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")

    def run(*arguments):
        result = processes.run(found, *map(str, arguments))
        return result.returncode, result.stdout + result.stderr

    return run


def test_prometheus_turns_pods_into_addresses(promtool, tmp_path):
    """By the relabelings as the Operator writes them: the same keys, in snake case."""
    (endpoint,) = MONITOR["spec"]["podMetricsEndpoints"]
    rules = [
        {re.sub("[A-Z]", lambda c: f"_{c[0].lower()}", key): value for key, value in rule.items()}
        for rule in endpoint["relabelings"]
    ]
    pods = {"main": "10.1.2.3", "wait": "10.1.2.4"}, {"main": "fd00::1"}
    targets = [
        {
            "targets": [f"{name}-of-{address}"],
            "labels": {
                "__meta_kubernetes_pod_container_name": name,
                "__meta_kubernetes_pod_ip": address,
            },
        }
        for pod in pods
        for name, address in pod.items()
    ]
    scrape = {
        "job_name": "training",
        "metrics_path": endpoint["path"],
        "scrape_interval": endpoint["interval"],
        "static_configs": targets,
        "relabel_configs": rules,
    }
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    code, output = promtool("check", "service-discovery", "--timeout=2s", path, "training")
    assert code == 0, output
    kept = [found["labels"] for found in json.loads(output) if found["labels"]]
    assert {each["__address__"] for each in kept} == {"10.1.2.3:9090", "[fd00::1]:9090"}
    assert {each["__metrics_path__"] for each in kept} == {"/metrics"}


# By alert, values by minute of what it looks at, and when it fires.
FIRES = {
    "TfxPerfTrainingStalled": ("tfx_perf_last_progress_timestamp_seconds", "0x30", [11, 20]),
    "TfxPerfLossNotFinite": ("tfx_perf_train_loss", "1x9" + 5 * " NaN" + 5 * " Inf", [12, 19]),
    "TfxPerfOutOfMemory": ("tfx_perf_oom_steps_total", "0x9 1x20", [11, 20]),
    "TfxPerfMemoryNearlyFull": ("tfx_perf_peak_memory_share_ratio", "0.84x9 0.86x20", [11, 20]),
    "TfxPerfWaitsForInput": ("tfx_perf_input_wait_ratio", "0.29x9 0.31x20", [11, 20]),
}


@pytest.mark.parametrize("name", RULES)
def test_alerts_fire_when_they_should(name, promtool, tmp_path):
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump(ALERTS["spec"]))
    code, output = promtool("check", "rules", rules)
    assert code == 0, output
    metric, values, minutes = FIRES[name]

    def alert(value):
        texts = {
            key: text.replace("{{ $labels.pod }}", "p").replace(
                "{{ $value | humanizePercentage }}", value
            )
            for key, text in RULES[name]["annotations"].items()
        }
        return {"exp_labels": {**RULES[name]["labels"], "pod": "p"}, "exp_annotations": texts}

    shown = {"TfxPerfMemoryNearlyFull": "86%", "TfxPerfWaitsForInput": "31%"}.get(name, "")
    cases = [{"eval_time": "5m", "alertname": name, "exp_alerts": []}]
    cases += [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": [alert(shown)]}
        for minute in minutes
    ]
    series = {"series": f'{metric}{{pod="p"}}', "values": values}
    test = {"interval": "1m", "input_series": [series], "alert_rule_test": cases}
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(rules)], "tests": [test]}))
    code, output = promtool("test", "rules", path)
    assert code == 0, output


def test_kubectl_builds_the_folders():
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")

    def kinds(folder):
        built = processes.run(kubectl, "kustomize", folder, check=True)
        return [(each["kind"], each["metadata"]) for each in yaml.safe_load_all(built.stdout)]

    assert {kind for kind, _ in kinds(FOLDER.parent)} == {"Service", "Deployment"}
    found = dict(kinds(FOLDER))
    assert set(found) == {"ConfigMap", "PodMonitor", "PrometheusRule"}
    assert found["ConfigMap"]["labels"] == {"grafana_dashboard": "1"}
