"""The dataset of a job, read-only for the job."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from itertools import chain
from pathlib import Path

from formats.user_cache import our_cache
from imagestrata.training_jobs.errors import JobError
from imagestrata.training_jobs.steps import Pulling, Tell

PREFIX = Path("/datasets")
TOKEN = "IMAGESTRATA_TOKEN"
_PROBE_SECONDS = 20
# In a separate mount namespace: other processes do not see the mount, and it ends with the command.
_MOUNT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'


def fetch(url: str, name: str, prefix: Path, progress: Callable[[str, int, int], None]) -> Path:
    """Pull a dataset of a service to ``prefix/name``. Raises `JobError`, OSError."""
    from imagestrata import hub  # imported when something is pulled

    try:
        return hub.connect(url, token=os.environ.get(TOKEN)).pull(name, to=prefix, progress=progress)
    except hub.HubError as error:
        raise JobError(str(error)) from error


def dataset_at_hand(name: str, *, url: str | None, prefix: Path | None, tell: Tell) -> Path:
    """Return the folder of a dataset, pulled from a service or local already. Raises `JobError`, OSError."""
    if url is None:
        folders = [prefix] if prefix else [PREFIX, cache_prefix()]
        for folder in folders:
            if (folder / name).exists():
                tell(f"the dataset is {folder / name}; it is not pulled, because no service is given")
                return folder / name
        raise JobError(
            f"Wanted the dataset {name!r}. Found: none at {' or '.join(str(folder / name) for folder in folders)} "
            "(give the service that has it: --url URL, or IMAGESTRATA_URL)"
        )
    folder = _writable(prefix, tell)
    tell(f"pulling {name} from {url} into {folder}")
    with Pulling(name, tell) as pulling:
        if (folder / name).exists():  # replacing a version needs permission to remove its files
            _change_modes((folder / name).resolve(), lambda mode, is_folder: mode | 0o200 if is_folder else mode)
        try:
            fetch(url, name, folder, pulling.show)
            if not (folder / name).exists():
                raise JobError(f"Wanted the dataset {name!r} at {folder / name} after it was pulled. Found: none")
        finally:
            if (folder / name).exists():
                pulling.protecting()
                _change_modes((folder / name).resolve(), lambda mode, is_folder: mode & ~0o222)
    tell(f"{name} is ready after {pulling.seconds:.1f} s: {folder / name} is read-only")
    return folder / name


def cache_prefix() -> Path:
    """The folder of datasets if `PREFIX` is not writable."""
    return our_cache("datasets")


def read_only(dataset: Path, tell: Tell) -> list[str]:
    """The command prefix that mounts a dataset read-only; empty if permissions suffice."""
    folder = dataset.resolve()
    if os.geteuid() != 0:
        if os.access(folder, os.W_OK):
            tell(f"{dataset} is not protected: its files are writable, so the job can change them")
        return []
    wrapper = ["unshare", "--mount", "sh", "-ec", _MOUNT, "sh", str(folder)]
    if shutil.which("unshare") and shutil.which("mount"):
        try:
            probe = subprocess.run(
                [*wrapper, "sh", "-c", '! [ -w "$1" ]', "sh", str(folder)],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, check=False,
            )  # fmt: skip
            if probe.returncode == 0:
                return wrapper
        except (OSError, subprocess.TimeoutExpired):
            pass
    tell(f"{dataset} is not protected: the job runs as root, and a read-only mount is not possible here")
    return []


def _writable(prefix: Path | None, tell: Tell) -> Path:
    """Choose the folder for pulled datasets: the given one, else `PREFIX`, else the cache."""
    folder = (prefix or PREFIX).absolute()
    above = next(one for one in (folder, *folder.parents) if os.path.exists(one))
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return folder
    why = f"{above} is not writable" if above.is_dir() else f"{above} is no folder"
    if prefix:
        raise JobError(f"Wanted a writable folder for datasets. Found: {prefix}: {why}")
    cache = cache_prefix()
    tell(f"datasets are in {cache}, not in {PREFIX}: {why}; the job must use $DATASETS or $DATASET")
    return cache


def _change_modes(top: Path, change: Callable[[int, bool], int]) -> None:
    inside = (Path(folder, name) for folder, folders, files in os.walk(top) for name in (*folders, *files))
    for path in chain([top], inside):
        found = path.lstat()
        mode = stat.S_IMODE(found.st_mode)
        wanted = change(mode, stat.S_ISDIR(found.st_mode))
        if wanted != mode and not stat.S_ISLNK(found.st_mode):
            path.chmod(wanted)
