"""An embedded S3 server on the loopback: versitygw over a folder, keys checked for real.

`S3(folder)` describes it; what stands in `folder` (settings, keys, buckets) outlives the process. As a context manager
it is a fresh server on a free port for a test:

    with S3(tmp_path) as server:
        server.make_bucket("pictures")
        Storage("s3://pictures", S3Access(server.endpoint, server.access_key, server.secret_key))

    FOLDER/settings.json (readable by its owner alone)  pid  log
           buckets/  sidecar/ (what the file system cannot keep as attributes)
"""

import datetime
import hashlib
import hmac
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from imagestrata.devstack import NodeError, PortError
from imagestrata.devstack.servers import ports, processes, versitygw
from imagestrata.devstack.steps import locked

HOST = "127.0.0.1"
REGION = "us-east-1"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
# A free port may be taken between the look and the start.
START_ATTEMPTS = 3


@dataclass(frozen=True)
class Settings:
    """What stays the same for a folder; `settings.json` there."""

    port: int
    access_key: str
    secret_key: str = field(repr=False)


class S3:
    """A server whose buckets lie in `folder`; `port=None` takes the folder's last one, or a free one.

    Keys are the folder's, by default made at random.
    """

    def __init__(
        self, folder: Path, *, port: int | None = None, access_key: str | None = None, secret_key: str | None = None
    ) -> None:
        if port is not None and not 1024 <= port <= 65535:
            raise NodeError(f"wanted a port from 1024 to 65535. Found: {port}.")
        self.folder = Path(folder).resolve()
        self._asked_port = port
        self._asked_keys = (access_key, secret_key)
        self._settings = self._read_settings()
        # Kept, because Python complains of children that are forgotten while they run.
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def port(self) -> int:
        """Where it listens; raises NodeError before the first start."""
        return self._known().port

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return f"http://{HOST}:{self.port}"

    @property
    def access_key(self) -> str:
        """The name of its one user."""
        return self._known().access_key

    @property
    def secret_key(self) -> str:
        """The secret of its one user."""
        return self._known().secret_key

    @property
    def pid(self) -> int | None:
        """The process when it runs, or None."""
        return processes.recall(self.folder / "pid")

    def is_up(self) -> bool:
        """Whether our own process holds the port."""
        pid = self.pid
        return pid is not None and self._settings is not None and ports.holds(pid, self.port, HOST)

    def start(self, *, tied: bool = False) -> bool:
        """Start it if it does not run and wait until it answers; False when it was up.

        Raises PortError when the port is a stranger's, SetupError when the program cannot be built, NodeError when it
        does not come up. A `tied` server dies with the thread that starts it.
        """
        program = versitygw.build()
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
            self._stop()
            for attempt in range(START_ATTEMPTS):
                self._settle()
                try:
                    self._await(self._launch(program, tied=tied))
                    return True
                except PortError:
                    self._stop()
                    if self._asked_port is not None or attempt == START_ATTEMPTS - 1:
                        raise
                    self._settings = Settings(ports.free([HOST], 1)[0], self.access_key, self.secret_key)
                except BaseException:
                    self._stop()
                    raise
        raise AssertionError("unreachable")

    def stop(self) -> bool:
        """End it and wait for it; False when it did not run."""
        return self._stop()

    def clean(self) -> None:
        """End it and remove the folder with all buckets."""
        self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._settings = None

    def make_bucket(self, name: str) -> None:
        """Make a bucket; nothing happens where it is. Raises NodeError."""
        status, said = self._ask("PUT", f"/{name}")
        if status != 200 and b"BucketAlreadyOwnedByYou" not in said:
            raise NodeError(f"wanted a bucket {name} at {self.endpoint}. Found: {status} {said.decode()[:200]}")

    def __enter__(self) -> "S3":
        self.start(tied=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _known(self) -> Settings:
        if self._settings is None:
            raise NodeError(f"wanted the port of the S3 server in {self.folder}. Found: it was never started.")
        return self._settings

    def _read_settings(self) -> Settings | None:
        path = self.folder / "settings.json"
        if not path.is_file():
            return None
        try:
            settings = Settings(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise NodeError(f"wanted an S3 server's settings in {path}. Found: {error}. Remove that file.") from error
        return settings

    def _settle(self) -> None:
        """Decide port and keys and write them down, before the process starts."""
        old = self._settings
        access_key = self._asked_keys[0] or (old.access_key if old else secrets.token_hex(10).upper())
        secret_key = self._asked_keys[1] or (old.secret_key if old else secrets.token_urlsafe(30))
        port = self._asked_port or (old.port if old else ports.free([HOST], 1)[0])
        self._settings = Settings(port, access_key, secret_key)
        new = self.folder / ".settings.json.new"
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(self._settings.__dict__) + "\n")
        new.replace(self.folder / "settings.json")

    def _launch(self, program: Path, *, tied: bool) -> "subprocess.Popen[bytes]":
        if ports.is_held(self.port, HOST):
            raise PortError(
                f"wanted port {self.port} of {HOST} for S3. Found: {ports.holder(self.port, HOST)} listens there. "
                "End it, or take another port with --port."
            )
        buckets = self.folder / "buckets"
        buckets.mkdir(exist_ok=True)
        options = [] if _keeps_attributes(buckets) else ["--sidecar", str(self.folder / "sidecar")]
        if options:
            (self.folder / "sidecar").mkdir(exist_ok=True)
        # Keys go by the environment: a command line is everybody's to read.
        names = ("VGW_", "ROOT_ACCESS", "ROOT_SECRET", "AWS_", "WEBHOOK", "LOGFILE")
        env = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        env |= {"ROOT_ACCESS_KEY_ID": self.access_key, "ROOT_SECRET_ACCESS_KEY": self.secret_key}
        command = [str(program), "--port", f"{HOST}:{self.port}", "--region", REGION, "--quiet", "--keep-alive"]
        command += ["posix", *options, str(buckets)]
        process = processes.launch(command, self.folder / "pid", log=self.folder / "log", tied=tied, environment=env)
        self._children.append(process)
        return process

    def _await(self, process: "subprocess.Popen[bytes]") -> None:
        started = time.monotonic()
        while not self.is_up():
            if process.poll() is not None:
                if "in use" in self._complaint():
                    raise PortError(f"wanted port {self.port} of {HOST} for S3. Found: it was taken meanwhile.")
                raise NodeError(
                    f"wanted an S3 server in {self.folder}. "
                    f"Found: it ended with {process.returncode}: {self._complaint()}"
                )
            if time.monotonic() - started > START_TIMEOUT_S:
                raise NodeError(
                    f"wanted an S3 server at {self.endpoint} within {START_TIMEOUT_S:.0f} s. "
                    f"Found: {self._complaint()}. Its log: {self.folder / 'log'}"
                )
            time.sleep(0.02)
        self._check()

    def _check(self) -> None:
        status, said = self._ask("GET", "/")
        if status != 200:
            raise NodeError(
                f"wanted {self.endpoint} to take the keys of {self.folder}. Found: {status} {said.decode()[:200]}"
            )

    def _ask(self, method: str, path: str) -> tuple[int, bytes]:
        """One signed request without a body: status and answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        try:
            connection.request(method, path, headers=signature(method, path, settings=self._known()))
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise NodeError(f"wanted an answer from {self.endpoint}. Found: {error}") from None
        finally:
            connection.close()

    def _complaint(self) -> str:
        text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "nothing in its log"

    def _stop(self) -> bool:
        ran = processes.end(self.folder / "pid", timeout_s=STOP_TIMEOUT_S, by=signal.SIGTERM)
        for child in self._children:
            child.poll()
        return ran


def signature(method: str, path: str, *, settings: Settings) -> dict[str, str]:
    """The headers of a signed request (AWS signature 4) that has neither query nor body."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": f"{HOST}:{settings.port}", "x-amz-content-sha256": empty, "x-amz-date": stamp}
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    names = ";".join(headers)
    request = f"{method}\n{path}\n\n{lines}\n{names}\n{empty}"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{settings.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signed = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={settings.access_key}/{scope}"
    headers["Authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signed}"
    return headers


def _keeps_attributes(folder: Path) -> bool:
    """Whether the file system keeps extended attributes of users."""
    try:
        os.setxattr(folder, "user.imagestrata", b"1")
    except OSError:
        return False
    return True
