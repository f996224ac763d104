"""Packs wheels into small pieces for a GPU machine without a network.

    scripts/gpu_pack --sm 9.0 --out artefacts/pack ctranslate2==4.8.5 pydantic pydantic-core
    … carry the folder there, in as many trips as it takes …
    python3 artefacts/pack/unpack.py /tmp/site && TRIMODAL_SITE=/tmp/site scripts/gpu_check

Each requirement is fetched without what it needs itself: name every package that the machine lacks. GPU code
for other architectures is zeroed in the libraries, which stay loadable, and compresses to nothing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

from trimodal.bench.gpu_pack.fatbin import PackError, Stripped, strip
from trimodal.bench.gpu_pack.pieces import compress, write_manifest
from trimodal.bench.gpu_pack.wheels import PLATFORMS, download, unpack

MIB = 1 << 20


def pack(wheel: Path, sm: int, out: Path, limit: int) -> tuple[list[Path], Stripped]:
    """Pieces of one wheel in `out`, and what was taken from its libraries.

    Raises:
        PackError: it is no wheel, or a library in it is not built as known.
    """
    total = Stripped()
    with tempfile.TemporaryDirectory(prefix="trimodal-pack-") as work:
        folder = Path(work)
        unpack(wheel, folder)
        for library in folder.rglob("*.so*"):
            if library.is_file() and not library.is_symlink() and library.stat().st_size:
                one = strip(library, sm)
                total.kept += one.kept
                total.zeroed += one.zeroed
                total.containers += one.containers
                total.without += one.without
        return compress(folder, name_of(wheel), out, limit), total


def name_of(wheel: Path) -> str:
    """The package and its version, as they begin a wheel's name."""
    return "-".join(wheel.name.split("-")[:2])


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_pack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("requirements", nargs="*", help="as pip takes them: NAME or NAME==VERSION")
    parser.add_argument(
        "--wheels", type=Path, help="folder of wheels to pack as well; nothing is fetched for it"
    )
    parser.add_argument(
        "--sm", required=True, help="compute capability of the GPU, as 9.0 (H100, H200) or 8.9"
    )
    parser.add_argument("--out", type=Path, default=Path("artefacts/gpu_pack"), help="folder for the pieces")
    parser.add_argument("--piece-mib", type=float, default=40, help="largest piece (40)")
    parser.add_argument("--python", default="3.12", help="version of Python there (3.12)")
    parser.add_argument("--platform", action="append", help="repeatable; manylinux for x86-64")
    options = parser.parse_args(given)
    if not re.fullmatch(r"\d{1,2}\.\d", options.sm):
        parser.error(f"--sm {options.sm}: a compute capability is needed, as 9.0")
    if not 0.001 <= options.piece_mib <= 4096:
        parser.error("--piece-mib must be from 0.001 to 4096")
    if not (options.requirements or options.wheels):
        parser.error("name a requirement, or a folder of --wheels")
    return options


def main(given: list[str] | None = None) -> int:
    """0 when everything was packed."""
    options = arguments(given)
    limit = int(options.piece_mib * MIB)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        archives = {}
        with tempfile.TemporaryDirectory(prefix="trimodal-wheels-") as work:
            if options.requirements:
                download(options.requirements, Path(work), options.python, options.platform or PLATFORMS)
            wheels = sorted([*Path(work).glob("*.whl"), *(options.wheels or Path(work)).glob("*.whl")])
            wheels = list(dict.fromkeys(wheels))
            if not wheels:
                raise PackError(f"no wheel in {options.wheels}")
            for wheel in wheels:
                name = name_of(wheel)
                archives[name], found = pack(wheel, int(options.sm.replace(".", "")), options.out, limit)
                size = sum(file.stat().st_size for file in archives[name]) / MIB
                before = wheel.stat().st_size / MIB
                print(f"{name}: {before:.1f} → {size:.1f} MiB in {len(archives[name])} pieces")
                if found.containers:
                    print(f"  GPU code: {found.kept / MIB:.1f} MiB kept, {found.zeroed / MIB:.1f} MiB zeroed")
                if found.without:
                    print(
                        f"  {found.without} of {found.containers} parts have no code for SM {options.sm} "
                        "in the wheel either"
                    )
        write_manifest(options.out, archives)
        shutil.copy(Path(__file__).with_name("unpack.py"), options.out / "unpack.py")
    except (PackError, OSError) as error:
        print(f"gpu_pack: {error}", file=sys.stderr)
        return 1
    print(f"there: python3 {options.out}/unpack.py SITE")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
