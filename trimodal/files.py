"""Replaces a file in one step, so that a full disk or a kill in the middle leaves what was there before.

`alone_in` keeps several processes from changing the files of one folder at once, and `read_at_most` reads a
file that may have no end.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import math
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# What says that there can be no other file beside it, or none in its place (a single file mounted into a
# container): it is written where it is.
_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)
MOST_BYTES = 64 << 20
logger = logging.getLogger(__name__)


def read_at_most(file: Path, limit: int = MOST_BYTES) -> bytes:
    """A file's content. Raises: OSError: also where it is longer, as /dev/zero, which has no end."""
    with file.open("rb") as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(file))
    return content


@contextmanager
def alone_in(folder: Path, *, where_possible: bool = False, patience_s: float = math.inf) -> Iterator[None]:
    """Lets others that ask for the same folder wait while the block lasts.

    Args:
        where_possible: the block runs all the same on a file system without locks.
        patience_s: how long another is waited for.

    Raises: OSError naming `folder`.
    """
    deadline = time.monotonic() + patience_s
    # The folder itself is locked: its files are replaced, and one for the lock alone would stay.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            while not _locks(handle):
                if time.monotonic() > deadline:
                    raise OSError(errno.EAGAIN, "it is locked by another process")
                time.sleep(0.01)
        except OSError as error:
            if not where_possible:
                raise OSError(error.errno, error.strerror, str(folder)) from None
        yield
    finally:
        os.close(handle)


def _locks(handle: int) -> bool:
    """Locks it, unless another process has it. Raises: OSError: there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def replace_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """Writes a file whole or not at all; it stays its owner's, and readable as it was; through links.

    What is no regular file, such as /dev/stdout, is written to.

    Args:
        private: a key file. A first one is its directory's owner's, and readable by nobody else: root, who
            writes it for a service, hands it over, but not where everybody may write (as /tmp). The path is
            what is replaced, also where it has become a link: who owns the directory would lead root
            elsewhere. It is never half there for who reads it, so that one which can only be written where
            it is (a mount) is refused. Other first files are as any program's: what the mask leaves.

    Raises: OSError naming `path`.
    """
    try:
        if private:
            _replace(path, content, private=True)
            return
        if path.exists() and not path.is_file():  # a pipe at /dev/stdout has no other name
            path.write_bytes(content)
            return
        target = Path(os.path.realpath(path))
        try:
            _replace(target, content, private=False)
        except OSError as error:
            if error.errno not in _IN_PLACE:
                raise
            target.write_bytes(content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _replace(target: Path, content: bytes, *, private: bool) -> None:
    first = not target.exists()
    temporary = target.with_name(f".{target.name[:16]}-{secrets.token_hex(8)}")
    # The system takes the mask off this mode. To ask for the mask is to set it, for all threads.
    mode = 0o666 if first and not private else 0o600
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())  # else its new name may outlive a power cut, and its content not
            # By its handle: where the directory is another's, its path may lead elsewhere by now.
            if not first:
                _liken(out.fileno(), target, private=private)
            elif private:
                _hand_over(out.fileno(), target.parent)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _hand_over(temporary: int, directory: Path) -> None:
    """Gives it to the owner of the directory, unless everybody may write there."""
    found = directory.stat()
    if not found.st_mode & (stat.S_IWOTH | stat.S_ISVTX):
        with suppress(OSError):  # only root may give it away
            os.chown(temporary, found.st_uid, found.st_gid)


def _liken(temporary: int, file: Path, *, private: bool) -> None:
    """Gives it the owner, the group and the mode of `file`, as far as whoever runs this may."""
    before = os.stat(file)
    try:
        os.chown(temporary, before.st_uid, before.st_gid)
    except OSError:  # only root may give it away; its group may be any that one is in
        with suppress(OSError):
            os.chown(temporary, -1, before.st_gid)
    now, mode = os.stat(temporary), before.st_mode & 0o777
    if private and now.st_uid != before.st_uid:
        logger.warning(
            "%s was of user %d and is now of %d: who serves must be able to read it",
            file,
            before.st_uid,
            now.st_uid,
        )
    if now.st_gid != before.st_gid:
        mode &= ~stat.S_IRWXG  # it was no right of this group
    os.chmod(temporary, mode)


def folder_size(folder: Path) -> int:
    """Bytes of all files in a folder and below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
