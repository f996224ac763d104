"""Pods: what they may do, what they write to, how long they get, and what they build first."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.deploy.kubernetes.objects import (
    PAGE,
    PROFILES,
    ROOT,
    VALUES,
    Object,
    containers,
    gateway,
    of_kind,
    pods,
    server,
    shipped,
    size,
)
from tests.project.pages import section, tables
from tests.project.test_docs import COMMANDS
from trimodal.doctor.machine import LEAST_SHM
from trimodal.repository import model_names, read_model
from trimodal.server.preflight import SHM_PER_INSTANCE

by_profile = pytest.mark.parametrize("profile", PROFILES)
ENDING_S = 5  # of a server in which nothing runs: docs/reliability.md measured 1.3 to 4.4 s


def option(one: Object, name: str) -> Any:
    """An option's value as the command line's own parser reads it."""
    command = COMMANDS.get_command(typer.Context(COMMANDS), one["args"][0])
    return command.make_context("", list(one["args"][1:])).params[name]


@by_profile
def test_security_contexts_are_what_the_page_says(profile: str) -> None:
    rows = {row[0].strip("`"): row[1].strip("`") for row in tables(section(PAGE, "What a pod may do"))[1:]}
    given = list(pods(shipped(profile)))
    assert len(given) == 2
    for pod in given:
        for one in containers(pod):
            context = pod["spec"]["securityContext"] | one["securityContext"]
            told = {
                "runAsNonRoot": context["runAsNonRoot"],
                "runAsUser": context["runAsUser"],
                "runAsGroup": context["runAsGroup"],
                "fsGroup": context["fsGroup"],
                "allowPrivilegeEscalation": context["allowPrivilegeEscalation"],
                "readOnlyRootFilesystem": context["readOnlyRootFilesystem"],
                "capabilities": f"drop {', '.join(context['capabilities']['drop'])}",
                "seccompProfile": context["seccompProfile"]["type"],
                "automountServiceAccountToken": pod["spec"]["automountServiceAccountToken"],
            }
            assert {name: str(value) for name, value in told.items()} == {
                name: value.title() if value in ("true", "false") else value for name, value in rows.items()
            }


@by_profile
def test_pods_keep_the_restricted_standard(profile: str) -> None:
    """Pod Security Admission's strictest level, as Kubernetes' page lists it."""
    for pod in pods(shipped(profile)):
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for volume in spec["volumes"]:
            (kind,) = volume.keys() - {"name"}
            assert kind in ("configMap", "secret", "emptyDir", "persistentVolumeClaim")
        for one in containers(pod):
            context = one["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["allowPrivilegeEscalation"] is False
            assert "privileged" not in context
            assert not any("hostPort" in port for port in one.get("ports", []))


@by_profile
def test_containers_write_where_they_must_and_nowhere_else(profile: str) -> None:
    (workload,) = of_kind("StatefulSet", shipped(profile))
    claims = {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    for pod in pods(shipped(profile)):
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]} | claims
        for one in containers(pod):
            assert {mount["name"] for mount in one["volumeMounts"]} <= volumes
    # docker-compose's server has the same, and tests/project/test_container.py that libraries keep to it.
    caches = {"/cache"} if profile != "cpu" else set()
    assert written(server(shipped(profile))) == {"/tmp", "/dev/shm"} | caches
    assert written(gateway(shipped(profile))) == {"/tmp"}
    for one in workload["spec"]["template"]["spec"]["initContainers"]:
        assert written(one) == {"/tmp", "/dev/shm", "/hub", "/engines"}


def written(one: Object) -> set[str]:
    return {mount["mountPath"] for mount in one["volumeMounts"] if not mount.get("readOnly")}


@by_profile
def test_shared_memory_is_enough_and_counted(profile: str) -> None:
    (workload,) = of_kind("StatefulSet", shipped(profile))
    (shm,) = [one for one in workload["spec"]["template"]["spec"]["volumes"] if one["name"] == "shm"]
    room = size(shm["emptyDir"]["sizeLimit"])
    assert shm["emptyDir"]["medium"] == "Memory"
    repository = ROOT / "model_repository"
    models = [read_model(repository, name, profile) for name in model_names(repository)]
    assert room >= max(LEAST_SHM, 4 * SHM_PER_INSTANCE * sum(model.instances for model in models))
    assert f"`/dev/shm` | {VALUES['server']['shmSize']}" in PAGE.read_text()
    limits = server(shipped(profile))["resources"]["limits"]
    assert size(limits["memory"]) > 2 * room, "it is memory of the container"


@by_profile
def test_the_drain_ends_before_the_grace_period(profile: str) -> None:
    for kind, one in (("StatefulSet", server(shipped(profile))), ("Deployment", gateway(shipped(profile)))):
        (workload,) = of_kind(kind, shipped(profile))
        grace = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        before = one["lifecycle"]["preStop"]["sleep"]["seconds"]
        drain = option(one, "drain_timeout")
        assert before >= 5, "until no one sends new requests here"
        assert drain >= 30
        assert before + drain + ENDING_S < grace


@by_profile
def test_who_is_late_says_so_before_the_startup_probe_ends_it(profile: str) -> None:
    one = server(shipped(profile))
    patience = one["startupProbe"]["periodSeconds"] * one["startupProbe"]["failureThreshold"]
    assert option(one, "ready_timeout") + 30 < patience


@by_profile
def test_an_update_waits_until_gateways_know_the_new_address(profile: str) -> None:
    """gRPC's core asks DNS again after 30 s at the earliest; the gateway looks once a second."""
    (workload,) = of_kind("StatefulSet", shipped(profile))
    assert workload["spec"]["minReadySeconds"] > 30 + 5
    assert "dns_min_time" not in (ROOT / "trimodal/client/transports/grpc.py").read_text()


@by_profile
def test_gpus_are_asked_for_where_a_profile_has_them(profile: str) -> None:
    on_gpu = profile != "cpu"
    (workload,) = of_kind("StatefulSet", shipped(profile))
    pod = workload["spec"]["template"]["spec"]
    resources = server(shipped(profile))["resources"]
    for side in ("requests", "limits"):
        assert ("nvidia.com/gpu" in resources[side]) == on_gpu
    assert bool(pod.get("tolerations")) == on_gpu
    for one in pod["initContainers"]:
        # Plans are compiled on the GPU that serves them; profile cuda exports on the processor.
        assert ("nvidia.com/gpu" in one["resources"]["limits"]) == (profile == "tensorrt")
    for one in containers({"spec": pod}):
        # A CPU limit would throttle: the engines take one thread for each CPU that they see.
        assert "cpu" not in one["resources"]["limits"]
        assert one["resources"]["requests"]["memory"] == one["resources"]["limits"]["memory"]


def test_the_page_has_each_profile_s_size() -> None:
    rows = {row[0].strip("`"): row for row in tables(section(PAGE, "Sizes"))}
    for profile in PROFILES:
        resources = server(shipped(profile))["resources"]
        assert rows[profile][1:4] == [
            resources["requests"]["cpu"],
            resources["limits"]["memory"],
            resources["limits"].get("nvidia.com/gpu", "–"),
        ]


# What runs before a server


def run(script: Object, mark: Path, wanted: str, *command: str) -> subprocess.CompletedProcess[str]:
    given = [*script["command"][:4], str(mark), wanted, *command]
    return subprocess.run(given, capture_output=True, text=True, timeout=20)


@by_profile
def test_engines_are_built_once_and_again_when_something_changed(profile: str, tmp_path: Path) -> None:
    """The scripts themselves, with another command in the place of the build."""
    (workload,) = of_kind("StatefulSet", shipped(profile))
    build = workload["spec"]["template"]["spec"]["initContainers"][0]
    mark, log = tmp_path / ".built-all", tmp_path / "log"
    command = ("/bin/sh", "-c", f"echo built >> {log}")
    assert run(build, mark, "1", *command).returncode == 0
    assert "built before" in run(build, mark, "1", *command).stdout
    assert log.read_text().count("built") == 1
    assert run(build, mark, "2", "/bin/sh", "-c", "exit 3").returncode == 3
    assert mark.read_text() == "1", "a build that failed is none"
    assert run(build, mark, "2", *command).returncode == 0
    assert (mark.read_text(), log.read_text().count("built")) == ("2", 2)


def test_every_build_has_a_mark_of_its_own() -> None:
    found = []
    for profile in PROFILES:
        (workload,) = of_kind("StatefulSet", shipped(profile))
        marks = [one["command"][4:6] for one in workload["spec"]["template"]["spec"]["initContainers"]]
        assert len({mark for mark, _ in marks}) == len(marks)
        assert all(re.fullmatch(r"[0-9a-f]{16}", wanted) for _, wanted in marks)
        found += [wanted for _, wanted in marks]
    assert len(set(found)) == len(found)
