"""The README's tree names every file that a reader may open, so that it cannot drift."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tree_names_every_module_script_and_config() -> None:
    tree = (ROOT / "README.md").read_text().split("## The tree", 1)[1]
    named = set()
    folder = ""
    for line in tree.split("```", 2)[1].splitlines():
        name = line.split()[0] if line.split() else ""
        if name.endswith("/"):
            folder = name
        elif name:
            named.add(folder + name if line.startswith(" ") else name)
    listed = subprocess.run(
        ["git", "ls-files", "trimodal", "build", "clients", "scripts", "model_repository"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    code = [name for name in listed if name.endswith((".py", ".pbtxt")) or name.startswith("scripts/")]
    missing = {name for name in code if not name.endswith("__init__.py")} - named
    assert not missing, f"add to the README's tree: {sorted(missing)}"
    gone = {name for name in named if not (ROOT / name).exists()}
    assert not gone, f"remove from the README's tree: {sorted(gone)}"
