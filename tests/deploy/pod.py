"""Runs the containers of a manifest without a cluster, in namespaces that the caller makes (test_pod.py).

Arguments, variables, ports, host names, sizes of /tmp and /dev/shm, user and rights are the manifest's; all
else is read-only. Only the images are not theirs: this machine's Python runs the commands, on fake engines.
Reads the objects as JSON, and prints what was seen as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.deploy.objects import ROOT, Object, containers, environment, of_kind
from trimodal.gateway.keys import Key, add_key

BOX = Path("/mnt")  # written here, and read by the containers
SEEN = Path("/media")  # the same, read-only
PLACES = {"/repository": str(ROOT / "model_repository")} | {
    place: f"{SEEN}{place}" for place in ("/engines", "/upstreams", "/keys")
}
FAKE = ("--model=llm", "--model=embedding", "--set=llm.engine=fake", "--set=embedding.engine=fake")
WRITE = "import os, sys; sys.exit(not os.access(sys.argv[1], os.W_OK))"


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def prepare(given: list[Object]) -> str:
    """Mounts what the pods have; the key that the gateway lets in."""
    covered = ROOT.is_relative_to("/tmp")  # by the pod's own
    if covered:
        mount("--bind", str(ROOT), "/srv")
    (workload,) = of_kind("StatefulSet", given)
    volumes = {
        one["name"]: one.get("emptyDir", {}) for one in workload["spec"]["template"]["spec"]["volumes"]
    }
    sizes = {name: one["sizeLimit"].removesuffix("i") for name, one in volumes.items() if "sizeLimit" in one}
    mount("-t", "tmpfs", "-o", "mode=0755", "box", str(BOX))
    for name in ("engines", "upstreams", "keys"):
        (BOX / name).mkdir()
    (config,) = of_kind("ConfigMap", given)
    for name, text in config["data"].items():
        (BOX / "upstreams" / name).write_text(text)
    key = add_key(BOX / "keys" / "keys.toml", Key(name="first"))
    name = f"{workload['metadata']['name']}-0.{workload['spec']['serviceName']}"
    (BOX / "hosts").write_text(f"127.0.0.1 localhost {name}\n")
    mount("--bind", str(BOX / "hosts"), "/etc/hosts")
    mount("--bind", str(BOX), str(SEEN))
    mount("-o", "remount,bind,ro", str(SEEN))
    mount("-t", "tmpfs", "-o", f"mode=1777,size={sizes['tmp']}", "tmp", "/tmp")
    mount("-t", "tmpfs", "-o", f"mode=1777,size={sizes['shm']}", "shm", "/dev/shm")
    if covered:
        ROOT.mkdir(parents=True)
        mount("--bind", "/srv", str(ROOT))
        mount("-o", "remount,bind,ro", str(ROOT))
    mount("-o", "remount,bind,ro", "/")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return key


def start(command: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts it as user 1000 without capabilities, and with no variables but these and the images'."""
    images = {"XDG_CACHE_HOME": "/tmp/cache", "HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    bounded = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "setpriv", "--no-new-privs"]
    environment_of = {**images, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.Popen([*bounded, *command], env=environment_of, stdout=sys.stderr, cwd="/")


def run(one: Object, *more: str) -> subprocess.Popen[bytes]:
    """Runs a container's command."""

    def placed(text: str) -> str:
        head, equals, value = text.rpartition("=")
        for place, there in PLACES.items():
            if value == place or value.startswith(f"{place}/"):
                return f"{head}{equals}{there}{value.removeprefix(place)}"
        return text

    variables = {name: placed(value) for name, value in environment(one).items()}
    entrypoint = str(Path(sys.executable).parent / "trimodal")
    return start([entrypoint, *map(placed, one["args"]), *more], variables)


def ask(port: int, path: str, key: str = "") -> int:
    """The status of a page; 0: nobody answers."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers={"authorization": f"Bearer {key}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def until(status: int, port: int, path: str, seconds: float) -> None:
    """Waits until a page has this status. Raises: TimeoutError."""
    began = time.monotonic()
    while ask(port, path) != status:
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{path} of port {port} is {ask(port, path)}, not {status}")
        time.sleep(0.05)


def main() -> dict[str, Any]:
    given = json.load(sys.stdin)
    key = prepare(given)
    seen: dict[str, Any] = {}
    for place in ("/", "/var/tmp", str(ROOT), sys.prefix, str(SEEN), "/tmp", "/dev/shm"):
        tried = start([sys.executable, "-c", WRITE, place], {})
        seen[f"writes to {place}"] = tried.wait(20) == 0
    (server,) = [one for one in containers(given) if one.get("args", [""])[0] == "serve"]
    (gateway,) = [one for one in containers(given) if one.get("args", [""])[0] == "gateway"]
    serving, front = run(server, *FAKE), run(gateway)
    try:
        until(200, 8003, "/live", 30)
        seen["ready while loading"] = ask(8003, "/ready")
        until(200, 8003, "/ready", 90)
        until(200, 8080, "/health", 30)
        until(200, 8080, "/ready", 30)  # by its name, and its port of the health page
        seen["without a key"] = ask(8080, "/v1/models")
        seen["with a key"] = ask(8080, "/v1/models", key)
        seen["metrics"] = ask(8002, "/metrics")
        front.terminate()
        seen["gateway ended with"], seen["gateway took"] = ended(front)
        serving.terminate()
        until(503, 8003, "/ready", 2)
        seen["live while it drains"] = ask(8003, "/live")
        seen["server ended with"], seen["server took"] = ended(serving)
    finally:
        for process in (front, serving):
            process.kill()
    return seen


def ended(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    began = time.monotonic()
    return process.wait(60), time.monotonic() - began


if __name__ == "__main__":
    print(json.dumps(main()))
