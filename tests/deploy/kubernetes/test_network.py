"""Services, policies and budgets: whom they select, and that what calls another is let through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.kubernetes.objects import (
    PROFILES,
    Object,
    gateway,
    matched,
    of_kind,
    pods,
    server,
    shipped,
    the,
)
from trimodal.gateway.upstreams.file import read_upstreams

by_profile = pytest.mark.parametrize("profile", PROFILES)


@by_profile
def test_services_lead_to_ports_that_there_are(profile: str) -> None:
    services = of_kind("Service", shipped(profile))
    assert len(services) == 4
    for service in services:
        (component,) = matched({"matchLabels": service["spec"]["selector"]}, shipped(profile))
        one = (server if component == "server" else gateway)(shipped(profile))
        ports = {port["name"]: port["containerPort"] for port in one["ports"]}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]
            assert port["name"] == port["targetPort"]


@by_profile
def test_clients_of_grpc_see_servers_that_are_ready_and_the_gateway_all(profile: str) -> None:
    balanced = the("Service", "trimodal-grpc", shipped(profile))["spec"]
    names = the("Service", "trimodal-pods", shipped(profile))["spec"]
    assert balanced["clusterIP"] == names["clusterIP"] == "None"
    assert "publishNotReadyAddresses" not in balanced
    assert names["publishNotReadyAddresses"] is True
    assert the("Service", "trimodal", shipped(profile))["spec"].get("clusterIP") is None


@by_profile
def test_the_gateway_s_file_names_the_servers(profile: str, tmp_path: Path) -> None:
    """Its own reader takes the file; a pod of a StatefulSet is NAME-NUMBER.SERVICE."""
    (config,) = of_kind("ConfigMap", shipped(profile))
    (workload,) = of_kind("StatefulSet", shipped(profile))
    ((name, text),) = config["data"].items()
    (tmp_path / name).write_text(text)
    found = read_upstreams(tmp_path / name)
    grpc, health = (
        next(port["containerPort"] for port in server(shipped(profile))["ports"] if port["name"] == kind)
        for kind in ("grpc", "health")
    )
    assert set(found) == {
        f"{workload['metadata']['name']}-{number}.{workload['spec']['serviceName']}:{grpc}:{health}"
        for number in range(workload["spec"]["replicas"])
    }
    assert workload["spec"]["serviceName"] == "trimodal-pods"
    one = gateway(shipped(profile))
    (mount,) = [mount for mount in one["volumeMounts"] if mount["name"] == "upstreams"]
    assert f"--upstreams={mount['mountPath']}/{name}" in one["args"]
    assert "subPath" not in mount, "a file that is mounted alone does not change"


@by_profile
def test_policies_let_in_whom_the_servers_expect_and_nobody_else(profile: str) -> None:
    labels = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["metadata"]["labels"]
        for pod in pods(shipped(profile))
    }
    policies = {}
    for policy in of_kind("NetworkPolicy", shipped(profile)):
        (component,) = matched(policy["spec"]["podSelector"], shipped(profile))
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        policies[component] = policy["spec"]
    assert set(policies) == {"server", "gateway"} == set(labels)
    from_gateway, from_prometheus = policies["server"]["ingress"]
    (peer,) = from_gateway["from"]
    assert peer["podSelector"]["matchLabels"].items() <= labels["gateway"].items()
    assert not peer["podSelector"]["matchLabels"].items() <= labels["server"].items()
    assert [port["port"] for port in from_gateway["ports"]] == ["grpc", "health"]
    assert [port["port"] for port in from_prometheus["ports"]] == ["metrics"]
    assert set(from_prometheus["from"][0]) == {"namespaceSelector"}
    (entry,) = policies["gateway"]["ingress"]
    assert [port["port"] for port in entry["ports"]] == ["http"]
    # The way out of one is the way into the other.
    _, to_servers = policies["gateway"]["egress"]
    (peer,) = to_servers["to"]
    assert peer["podSelector"]["matchLabels"].items() <= labels["server"].items()
    ports = {port["name"]: port["containerPort"] for port in server(shipped(profile))["ports"]}
    assert [port["port"] for port in to_servers["ports"]] == [ports["grpc"], ports["health"]]


@by_profile
def test_everybody_may_ask_dns_and_builds_the_hub(profile: str) -> None:
    for policy in of_kind("NetworkPolicy", shipped(profile)):
        first, *others = policy["spec"]["egress"]
        assert first == {"ports": [{"port": 53, "protocol": name} for name in ("UDP", "TCP")]}
        hub = [rule for rule in others if rule["ports"] == [{"port": 443}]]
        assert len(hub) == (policy["metadata"]["name"] == "trimodal")
        for rule in hub:
            assert "10.0.0.0/8" in rule["to"][0]["ipBlock"]["except"]


@by_profile
def test_budgets_keep_all_but_one_of_each(profile: str) -> None:
    budgets: list[Object] = of_kind("PodDisruptionBudget", shipped(profile))
    assert [matched(one["spec"]["selector"], shipped(profile)) for one in budgets] == [
        {"server"},
        {"gateway"},
    ]
    for one in budgets:
        assert one["spec"]["maxUnavailable"] == 1, "minAvailable 1 of one server would hold its node for ever"
        assert one["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@by_profile
def test_selectors_of_workloads_take_their_own_pods(profile: str) -> None:
    for kind in ("StatefulSet", "Deployment"):
        (one,) = of_kind(kind, shipped(profile))
        wanted = {"StatefulSet": "server", "Deployment": "gateway"}[kind]
        assert matched(one["spec"]["selector"], shipped(profile)) == {wanted}
        assert "app.kubernetes.io/version" not in one["spec"]["selector"]["matchLabels"], "it cannot change"
