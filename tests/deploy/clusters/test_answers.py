"""What each query answers, and so how many servers KEDA asks for: by promtool; HAProxy reads its file."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.clusters.objects import DEPLOY, ROOT, objects, queries

SCRAPE = yaml.safe_load((DEPLOY / "keda" / "scrape.yml").read_text())
SERVERS = 2
SERIES = {
    # Half of the requests wait less than 0.25 s, all of them less than 0.5 s: 9 of 10 within 0.45 s.
    'trimodal_llm_queue_seconds_bucket{le="0.25"}': "0+30x60",
    'trimodal_llm_queue_seconds_bucket{le="0.5"}': "0+60x60",
    'trimodal_llm_queue_seconds_bucket{le="+Inf"}': "0+60x60",
    # 1 of 16 first texts comes after 0.5 s: 6.25 times the budget of 1 %.
    'trimodal_llm_ttft_seconds_bucket{le="0.5"}': "0+900x60",
    "trimodal_llm_ttft_seconds_count": "0+960x60",
    # A third is turned away: half as much again is wanted.
    'trimodal_llm_requests_total{outcome="stop"}': "0+40x60",
    'trimodal_llm_requests_total{outcome="unavailable"}': "0+20x60",
    'trimodal_llm_unserved_total{reason="queue"}': "0+20x60",
    "trimodal_llm_kv_usage_ratio": "0.4x60",
    "trimodal_llm_active_requests": "100x60",
    "trimodal_llm_queued_requests": "48x60",
    'trimodal_speech_lag_seconds_bucket{le="2.0"}': "0+80x60",
    'trimodal_speech_lag_seconds_bucket{le="3.0"}': "0+100x60",
    'trimodal_speech_lag_seconds_bucket{le="+Inf"}': "0+100x60",
    "trimodal_speech_active_streams": "20x60",
}
ASKED = {
    "requests_in_flight": 148 * SERVERS,
    "queue_seconds": 0.45 * SERVERS,
    "ttft_burn_rate": 6.25 * SERVERS,
    "turned_away": 1.5 * SERVERS,
    "kv_usage": 0.4 * SERVERS,
    "speech_lag": 2.5 * SERVERS,
    "speech_streams": 20 * SERVERS,
}
IDLE = dict.fromkeys(ASKED, 0.0)


@pytest.mark.slow
def test_queries_answer_what_the_servers_do(tmp_path: Path) -> None:
    """Busy, idle, gone: the load, a zero, no answer (which is an error to KEDA, and ends in the fallback)."""
    cases = [
        case("busy", every("trimodal", busy=True) + every("other", busy=True), ASKED),
        case("idle", every("trimodal", busy=False), IDLE),
        case("no metrics yet", [up("trimodal", index) for index in range(SERVERS)], IDLE),
        case("gone", every("other", busy=True), {}),
        case("batch, gone", every("trimodal", busy=True), {"queued_requests": 0.0}, "trimodal-batch"),
        case(
            "batch", every("trimodal-batch", busy=True), {"queued_requests": 48 * SERVERS}, "trimodal-batch"
        ),
        case("kserve", every("trimodal-cuda", busy=True), {"0": 0.45, "1": 2.5}, "trimodal-cuda"),
        case("kserve, gone", [], {}, "trimodal-cuda"),
    ]
    tests = {"rule_files": [], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    done = promtool(tmp_path, "test", "rules", "tests.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = (tmp_path / "tests.yml").read_text().replace("value: 3.0", "value: 4.0")
    (tmp_path / "tests.yml").write_text(wrong)
    assert promtool(tmp_path, "test", "rules", "tests.yml").returncode, "or it could not fail"


@pytest.mark.slow
def test_the_scrape_configuration_is_valid(tmp_path: Path) -> None:
    """But for how pods are found: Debian's promtool is built without Kubernetes."""
    config = copy.deepcopy(SCRAPE)
    for job in config["scrape_configs"]:
        del job["kubernetes_sd_configs"]
    (tmp_path / "scrape.yml").write_text(yaml.safe_dump(config))
    done = promtool(tmp_path, "check", "config", "--syntax-only", "scrape.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    config["scrape_configs"][0]["relabel_configs"][0]["action"] = "keeps"
    (tmp_path / "scrape.yml").write_text(yaml.safe_dump(config))
    assert promtool(tmp_path, "check", "config", "--syntax-only", "scrape.yml").returncode


@pytest.mark.slow
def test_haproxy_takes_its_file(tmp_path: Path) -> None:
    (config,) = (found for found in objects("ConfigMap") if "haproxy.cfg" in found.object["data"])
    for name, text, code in (
        ("good", config.object["data"]["haproxy.cfg"], 0),
        ("bad", config.object["data"]["haproxy.cfg"].replace("use_backend metrics", "use_backend metric"), 1),
    ):
        (tmp_path / name).write_text(text)
        command = [ROOT / "scripts" / "ci" / "haproxy", "-c", "-f", tmp_path / name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=170)
        if done.returncode == 69:
            pytest.skip(f"no haproxy here: {done.stderr.strip()[-200:]}")
        assert done.returncode == code, done.stdout + done.stderr


def up(release: str, index: int) -> dict[str, str]:
    return {"series": f'up{{job="trimodal", release="{release}", pod="{release}-{index}"}}', "values": "1x60"}


def every(release: str, *, busy: bool) -> list[dict[str, str]]:
    """What all servers of a release show; idle ones count nothing."""
    found = []
    for index in range(SERVERS):
        found.append(up(release, index))
        for series, values in SERIES.items():
            name, labels = re.fullmatch(r"(\w+)(?:\{(.*)\})?", series).groups()  # type: ignore[union-attr]
            own = ", ".join(filter(None, [labels, f'release="{release}"', f'pod="{release}-{index}"']))
            found.append({"series": f"{name}{{{own}}}", "values": values if busy else "0x60"})
    return found


def case(
    name: str, series: list[dict[str, str]], asked: dict[str, float], scaled: str = "trimodal"
) -> dict[str, Any]:
    """A test of promtool: what the queries of one object answer after half an hour."""
    ours = {full.split(":")[1]: query for full, query in queries().items() if full.split(":")[0] == scaled}
    assert asked.keys() <= ours.keys()
    expected = [
        {
            "expr": f"round({query}, 0.0001)",  # sums of floats come in any order
            "eval_time": "30m",
            "exp_samples": [{"labels": "{}", "value": asked[key]}] if key in asked else [],
        }
        for key, query in ours.items()
    ]
    return {"name": name, "interval": "1m", "input_series": series, "promql_expr_test": expected}


def promtool(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Runs that of PATH, or the one that scripts/ci/promtool unpacked."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cached = Path(os.environ.get("TRIMODAL_CACHE") or Path(home) / "trimodal") / "promtool/usr/bin/promtool"
    if not shutil.which("promtool") and not cached.is_file():
        fetched = subprocess.run(
            [ROOT / "scripts" / "ci" / "promtool"], capture_output=True, text=True, timeout=170
        )
        if fetched.returncode == 69:
            pytest.skip(f"no promtool here: {fetched.stderr.strip()[-200:]}")
    program = shutil.which("promtool") or str(cached)
    return subprocess.run([program, *args], cwd=folder, capture_output=True, text=True, timeout=60)
