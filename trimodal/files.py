"""Replaces a file in one step, so that a full disk or a kill in the middle leaves what was there before.

`alone_in` keeps several processes from changing the files of one folder at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# What says that there can be no other file beside it, or none in its place (a single file mounted into a
# container): it is written where it is.
_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lets others that ask for the same folder wait while the block lasts."""
    # The folder itself is locked: its files are replaced, and one for the lock alone would stay.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, with the mode that it had; through links, to what they lead to.

    What is no regular file, such as /dev/stdout, is written to. Raises: OSError naming `path`.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe at /dev/stdout has no other name
            path.write_bytes(content)
            return
        target = Path(os.path.realpath(path))
        try:
            _replace(target, content)
        except OSError as error:
            if error.errno not in _IN_PLACE:
                raise
            target.write_bytes(content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _replace(target: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:16]}-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            os.fchmod(out.fileno(), _mode(target))
            if target.exists():
                with suppress(OSError):  # only root may give it away
                    os.chown(out.fileno(), target.stat().st_uid, target.stat().st_gid)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(target: Path) -> int:
    """As the file has it; of a new one as any program's: what the mask leaves."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
