"""Writes plain manifests from the chart, beside itself: `python deploy/kubernetes/render.py [FOLDER]`.

Helm's own SDK renders, from PyPI (helm-python-sdk, Helm 4.2). Whoever has the command gets the same objects
from `helm template trimodal deploy/helm/trimodal --set profile=cuda`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CHART = FOLDER.parent / "helm" / "trimodal"
PROFILES = ("cpu", "cuda", "tensorrt")
# Who stands below needs what stands above.
ORDER = ("networkpolicy", "config", "services", "server", "build-job", "gateway", "pdb", "monitors")
HEAD = """\
# Profile {profile} as the chart renders it with its defaults: deploy/kubernetes/render.py.
#     kubectl create namespace NAME
#     kubectl -n NAME create secret generic trimodal-keys --from-file=keys.toml    # of `trimodal keys add`
#     kubectl -n NAME apply -f deploy/kubernetes/{profile}.yaml
# Put images of yours in the place of trimodal:…; docs/kubernetes.md has the rest.
"""


def rendered(values: Mapping[str, Any]) -> str:
    """All objects of the chart with these values, as YAML. Raises: helm_python.HelmError naming a value."""
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        chart.validate_schema(dict(values))
        files = chart.render(dict(values), name="trimodal", namespace="trimodal")
    texts = {Path(name).stem: text for name, text in files.items() if name.endswith(".yaml")}
    if unknown := texts.keys() - set(ORDER):
        raise ValueError(f"ORDER lacks {', '.join(sorted(unknown))}")
    documents = [part.strip("\n") for name in ORDER for part in re.split(r"(?m)^---$", texts.get(name, ""))]
    return "".join(f"---\n{part}\n" for part in documents if part.strip())


def text(profile: str) -> str:
    """The contents of a profile's file."""
    return HEAD.format(profile=profile) + rendered({"profile": profile})


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    for each in PROFILES:
        (folder / f"{each}.yaml").write_text(text(each))
