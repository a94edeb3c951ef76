"""An embedded S3 server on 127.0.0.1: versitygw over a folder. It checks keys and signatures.

`S3(folder)` describes it. Its settings, keys and buckets stay in `folder` when the process ends. As a context manager,
it is a new server on a free port for a test:

    with S3(tmp_path) as server:
        server.make_bucket("pictures")
        Storage("s3://pictures", S3Access(server.endpoint, server.access_key, server.secret_key))

    FOLDER/settings.json (readable only by its owner)  pid  log
           buckets/  sidecar/ (attributes that the file system cannot store)
"""

import json
import os
import secrets
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import urllib3

from formats.durability import whole_file
from imagestrata.devstack import NodeError, PortError, golang
from imagestrata.devstack.servers import ports, processes
from imagestrata.devstack.steps import locked

HOST = "127.0.0.1"
REGION = "us-east-1"
PROGRAM_VERSION = "v1.8.0"
PACKAGE = f"github.com/versity/versitygw/cmd/versitygw@{PROGRAM_VERSION}"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Settings:
    """The settings of a folder; in its `settings.json`."""

    port: int
    access_key: str
    secret_key: str = field(repr=False)


class S3:
    """A server with its settings and buckets in a folder. Without ``port``, it has that of the folder's last run, or a
    free one.
    """

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        if port is not None and not 1024 <= port <= 65535:
            raise NodeError(f"wanted a port from 1024 to 65535. Found: {port}.")
        self.folder = Path(folder).resolve()
        self._asked_port = port
        self._settings = self._read_settings()

    @classmethod
    def existing(cls, folder: Path) -> Self | None:
        """The server that was started in a folder, or None. Raises `NodeError` if its settings cannot be read."""
        return cls(folder) if (folder / "settings.json").is_file() else None

    @property
    def port(self) -> int:
        """The port. Raises `NodeError` before the first start."""
        return self._known().port

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return f"http://{HOST}:{self.port}"

    @property
    def access_key(self) -> str:
        """The access key of its only user."""
        return self._known().access_key

    @property
    def secret_key(self) -> str:
        """The secret key of its only user."""
        return self._known().secret_key

    @property
    def pid(self) -> int | None:
        """The pid of the process, or None if it does not run."""
        return processes.recall(self.folder / "pid")

    def is_up(self) -> bool:
        """Whether our process listens on the port."""
        pid = self.pid
        return pid is not None and self._settings is not None and ports.holds(pid, self.port, HOST)

    def start(self, *, tied: bool = False) -> bool:
        """Start the server unless it runs, and wait until it answers; False if it was running. A ``tied`` one is killed
        when the thread that starts it ends. Raises `PortError` if another process uses the port, `SetupError` if the
        program cannot be built, and `NodeError` if the server does not start.
        """
        program = build()
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / "lock", timeout_s=2 * START_TIMEOUT_S, what=f"S3 in {self.folder}"):
            self._settings = self._read_settings()
            if self.is_up():
                if self._asked_port not in (None, self.port):
                    raise NodeError(
                        f"wanted port {self._asked_port}. Found: this S3 server runs on {self.port}. "
                        "Run 'make s3-down' first."
                    )
                self._check()
                return False
            self.stop()
            change_ports = self._take_free_port if self._asked_port is None else None
            ports.start(lambda: self._launch(program, tied=tied), undo=self.stop, change_ports=change_ports)
            return True

    def stop(self) -> bool:
        """Stop the server and wait until it ends; False if it did not run."""
        return processes.end(self.folder / "pid", timeout_s=STOP_TIMEOUT_S)

    def clean(self) -> None:
        """Stop the server and delete the folder with all buckets."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._settings = None

    def make_bucket(self, name: str) -> None:
        """Create a bucket unless it exists. Raises `NodeError`."""
        status, said = self._ask("PUT", f"/{name}")
        if status != 200 and b"BucketAlreadyOwnedByYou" not in said:
            raise NodeError(f"wanted a bucket {name} at {self.endpoint}. Found: {status} {said.decode()[:200]}")

    def __enter__(self) -> Self:
        self.start(tied=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _known(self) -> Settings:
        if self._settings is None:
            raise NodeError(f"wanted the port of the S3 server in {self.folder}. Found: it was never started.")
        return self._settings

    def _read_settings(self) -> Settings | None:
        path = self.folder / "settings.json"
        if not path.is_file():
            return None
        try:
            return Settings(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise NodeError(f"wanted an S3 server's settings in {path}. Found: {error}. Delete that file.") from error

    def _take_free_port(self) -> None:
        self._settings = replace(self._known(), port=ports.free([HOST], 1)[0])

    def _settle(self) -> None:
        """Choose the port and the keys and save them, before the process starts."""
        old = self._settings
        access_key = old.access_key if old else secrets.token_hex(10).upper()
        secret_key = old.secret_key if old else secrets.token_urlsafe(30)
        port = self._asked_port or (old.port if old else ports.free([HOST], 1)[0])
        self._settings = Settings(port, access_key, secret_key)
        with whole_file(self.folder / "settings.json", private=True) as file:
            file.write(f"{json.dumps(self._settings.__dict__)}\n".encode())

    def _launch(self, program: Path, *, tied: bool) -> None:
        """Start the process, and wait until it answers."""
        self._settle()
        if ports.is_held(self.port, HOST):
            raise PortError(
                f"wanted port {self.port} of {HOST} for S3. Found: {ports.holder(self.port, HOST)} uses it. "
                "Stop it, or choose another port with --port."
            )
        buckets = self.folder / "buckets"
        buckets.mkdir(exist_ok=True)
        options = [] if _keeps_attributes(buckets) else ["--sidecar", str(self.folder / "sidecar")]
        if options:
            (self.folder / "sidecar").mkdir(exist_ok=True)
        # Keys are passed in the environment: every user can read a command line.
        names = ("VGW_", "ROOT_ACCESS", "ROOT_SECRET", "AWS_", "WEBHOOK", "LOGFILE")
        env = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        env |= {"ROOT_ACCESS_KEY_ID": self.access_key, "ROOT_SECRET_ACCESS_KEY": self.secret_key}
        command = [str(program), "--port", f"{HOST}:{self.port}", "--region", REGION, "--quiet", "--keep-alive"]
        command += ["posix", *options, str(buckets)]
        log = self.folder / "log"
        process = processes.launch(command, self.folder / "pid", log=log, tied=tied, environment=env)
        processes.await_ready(
            process, self.is_up, what="an S3 server", folder=self.folder, address=f"at {self.endpoint}", log=log,
            complaint=self._complaint, timeout_s=START_TIMEOUT_S,
        )  # fmt: skip
        self._check()

    def _check(self) -> None:
        status, said = self._ask("GET", "/")
        if status != 200:
            raise NodeError(
                f"wanted {self.endpoint} to accept the keys of {self.folder}. Found: {status} {said.decode()[:200]}"
            )

    def _ask(self, method: str, path: str) -> tuple[int, bytes]:
        """Send a signed request without a body; returns the status and the response."""
        from botocore.auth import S3SigV4Auth  # the doctor must do without it
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        request = AWSRequest(method, self.endpoint + path)
        S3SigV4Auth(Credentials(self.access_key, self.secret_key), "s3", REGION).add_auth(request)
        try:
            answer = urllib3.request(method, request.url, headers=dict(request.headers), timeout=10, retries=False)
        except urllib3.exceptions.HTTPError as error:
            raise NodeError(f"wanted an answer from {self.endpoint}. Found: {error}") from None
        return answer.status, answer.data

    def _complaint(self) -> str:
        """The last line of the log, for messages. Raises `PortError` if another process took the port."""
        text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        said = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "its log is empty")
        if "in use" in said:
            raise PortError(f"wanted port {self.port} of {HOST} for S3. Found: another process took it.")
        return said


def build() -> Path:
    """The path of the server's program, which is built from source if it does not exist. Raises `SetupError`."""
    return golang.built("versitygw", PROGRAM_VERSION, PACKAGE, patience="; about two minutes in total")


def _keeps_attributes(folder: Path) -> bool:
    """Whether the file system stores extended user attributes."""
    try:
        os.setxattr(folder, "user.imagestrata", b"1")
    except OSError:
        return False
    return True
