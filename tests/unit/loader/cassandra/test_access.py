"""Messages about access before any connection: options, files and the environment."""

import pickle
import re
import ssl
import warnings
import zipfile
from dataclasses import fields
from pathlib import Path

import pytest

import loader
from tests.support.certificates import Authority, Certificate, write_key
from tests.support.split_folders import image_ids, write_split_folder

SECRET, PASSPHRASE = "hardly-guessed-7", "open-sesame-5"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "authority")


@pytest.fixture(scope="module")
def locked(authority: Authority) -> Certificate:
    return authority.issue("locked", passphrase=PASSPHRASE)


@pytest.fixture(scope="module")
def other(authority: Authority) -> Certificate:
    return authority.issue("other")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, authority: Authority, other: Certificate) -> Path:
    """Files with wrong contents."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "text").write_text("no certificate", encoding="ascii")
    (folder / "binary").write_bytes(b"\x30\x82\xff\xfe")
    damaged = authority.ca.read_text(encoding="ascii").splitlines()
    (folder / "damaged").write_text("\n".join([damaged[0], "A" * 64, damaged[-1]]), encoding="ascii")
    with zipfile.ZipFile(folder / "empty.zip", "w") as made:
        made.writestr("config.json", "{}")
    with zipfile.ZipFile(folder / "hostless.zip", "w") as made:
        made.writestr("config.json", '{"host": "somewhere"}')
        for name, file in {"ca.crt": authority.ca, "cert": other.certificate, "key": other.key}.items():
            made.write(file, name)
    return folder


def access(names: dict[str, str], authority: Authority, locked: Certificate, other: Certificate, files: Path) -> None:
    """An access whose files are named by one word each."""
    known = {
        "ca": authority.ca, "certificate": locked.certificate, "key": locked.key, "other key": other.key,
        "other certificate": other.certificate,
    }  # fmt: skip
    given = {
        field: word if field in ("username", "password", "passphrase") else known.get(word, files / word)
        for field, word in names.items()
    }
    loader.Access(**given)  # type: ignore[arg-type]


PAIR = {"ca": "ca", "certificate": "certificate", "key": "key"}


@pytest.mark.parametrize(("given", "found"), [
    ({"username": "me"}, "username and password, or neither. Found: only username"),
    ({"password": SECRET}, "username and password, or neither. Found: only password"),
    ({"username": "me", "password": ""}, "password as text in UTF-8. Found: an empty one"),
    ({"username": "me", "password": f"{SECRET}\0"}, "password as text in UTF-8. Found: .*cannot be sent"),
    ({"username": "me", "password": f"{SECRET}\udcff"}, "password as text in UTF-8. Found: .*cannot be sent"),
    ({"certificate": "certificate", "ca": "ca"}, "certificate and key, or neither. Found: only certificate"),
    ({"key": "key", "ca": "ca"}, "certificate and key, or neither. Found: only key. .*IMAGESTRATA_CERTIFICATE"),
    ({"certificate": "certificate", "key": "key"}, "ca together with certificate.* Found: none. .*IMAGESTRATA_CA"),
    ({"passphrase": PASSPHRASE, "ca": "ca"}, "key together with passphrase"),
    ({"bundle": "empty.zip", "ca": "ca"}, "only a bundle, which has all certificates. Found: also ca"),
    ({"ca": "gone"}, r"authorities \(ca\) in PEM in .*gone. Found: No such file"),
    ({"ca": "text"}, "in PEM in .*text. Found: no such block in it"),
    ({"ca": "binary"}, "in PEM in .*binary. Found: no such block in it"),
    ({"ca": "damaged"}, "in PEM in .*damaged. Found: a damaged one"),
    ({"ca": "other key"}, "in PEM in .*other.key. Found: no such block in it"),
    ({**PAIR, "certificate": "damaged"}, "the client's certificate in PEM in .*damaged. Found: a damaged one"),
    ({**PAIR, "key": "certificate"}, "private key in PEM in .*locked.pem. Found: no such block in it"),
    ({**PAIR, "key": "gone"}, "private key in PEM in .*gone. Found: No such file"),
    (PAIR, "private key .*locked.key. Found: it is locked, and no passphrase is given"),
    ({**PAIR, "passphrase": "swordfish-9"}, "private key .*locked.key. Found: the passphrase does not open it"),
    ({**PAIR, "passphrase": "x" * 5000}, "private key .*locked.key. Found: the passphrase does not open it"),
    ({**PAIR, "key": "other key"}, "private key .*other.key. Found: the key of another certificate than .*locked.pem"),
    ({"bundle": "gone.zip"}, "a secure connect bundle in .*gone.zip. Found: No such file"),
    ({"bundle": "text"}, "a secure connect bundle in .*text. Found: File is not a zip file"),
    ({"bundle": "empty.zip"}, "empty.zip. Found: a zip without ca.crt, cert, key. Download it again"),
    ({"bundle": "hostless.zip"}, "host and port in config.json of the bundle .*hostless.zip. Found: none"),
])  # fmt: skip
def test_invalid_credentials_are_reported_without_secrets(
    authority: Authority, locked: Certificate, other: Certificate, files: Path, given: dict[str, str], found: str
) -> None:
    with pytest.raises(loader.OptionError, match=found) as refused:
        access(given, authority, locked, other, files)
    for secret in (SECRET, PASSPHRASE, "swordfish-9", "xxxxx"):
        assert secret not in repr(refused.value)


def test_secrets_are_hidden_from_repr_and_kept_in_pickles(authority: Authority, locked: Certificate) -> None:
    made = loader.Access(
        username="me",
        password=SECRET,
        ca=authority.ca,
        certificate=str(locked.certificate),
        key=locked.key,
        passphrase=PASSPHRASE,
    )
    assert SECRET not in repr(made)
    assert PASSPHRASE not in repr(made)
    assert "username='me'" in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made


def test_files_are_read_when_they_are_needed(authority: Authority, tmp_path: Path) -> None:
    renewed = tmp_path / "ca.pem"
    renewed.write_bytes(authority.ca.read_bytes())
    made = loader.Access(ca=renewed)
    renewed.write_bytes(authority.ca.read_bytes() * 2)
    assert made.for_acsylla(["127.0.0.1"])["ssl_trusted_cert"] == authority.ca.read_text(encoding="ascii") * 2
    renewed.unlink()
    with pytest.raises(loader.OptionError, match=r"ca in the file .*ca\.pem\. Found: No such file"):
        made.for_acsylla(["127.0.0.1"])


def test_tls_before_version_1_2_is_refused(authority: Authority, other: Certificate) -> None:
    old = authority.server(other)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    context = loader.Access(ca=authority.ca).strict_tls()
    assert context is not None
    context.set_ciphers("ALL:@SECLEVEL=0")
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(theirs, ours, server_hostname="localhost").do_handshake()
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        old.wrap_bio(ours, theirs, server_side=True).do_handshake()


def test_a_key_in_the_traditional_format_is_opened(authority: Authority, other: Certificate, tmp_path: Path) -> None:
    old = tmp_path / "old.key"
    write_key(other.key.read_bytes(), old, passphrase=PASSPHRASE, traditional=True)
    assert "Proc-Type: 4,ENCRYPTED" in old.read_text(encoding="ascii")
    paths = {"ca": authority.ca, "certificate": other.certificate, "key": old}
    loader.Access(**paths, passphrase=PASSPHRASE)  # type: ignore[arg-type]
    with pytest.raises(loader.OptionError, match="the passphrase does not open it"):
        loader.Access(**paths, passphrase="swordfish-9")  # type: ignore[arg-type]


def test_the_environment_supplies_missing_options(authority: Authority, locked: Certificate, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\r\nnot this\n", encoding="utf-8")
    environment = {
        "IMAGESTRATA_USERNAME": "me",
        "IMAGESTRATA_PASSWORD_FILE": str(tmp_path / "secret"),
        "IMAGESTRATA_CA": str(authority.ca),
        "IMAGESTRATA_CERTIFICATE": str(locked.certificate),
        "IMAGESTRATA_KEY": str(locked.key),
        "IMAGESTRATA_PASSPHRASE": PASSPHRASE,
        "IMAGESTRATA_BUNDLE": "",
        "IMAGESTRATA_PASSWORD": "",
    }
    found = loader.Access.from_environment(environment)
    assert found == loader.Access(
        username="me",
        password=SECRET,
        ca=str(authority.ca),
        certificate=str(locked.certificate),
        key=str(locked.key),
        passphrase=PASSPHRASE,
    )
    mixed = loader.Access.from_environment(environment, username="you", password="swordfish-9", ca=None)
    assert (mixed.username, mixed.password, mixed.ca) == ("you", "swordfish-9", str(authority.ca))
    assert loader.Access.from_environment({}) == loader.Access()


@pytest.mark.parametrize("secret", ["password", "passphrase"])
def test_a_secret_set_twice_or_empty_in_the_environment_is_refused(tmp_path: Path, secret: str) -> None:
    variable, path = f"IMAGESTRATA_{secret.upper()}", tmp_path / "secret"
    environment = {variable: SECRET, f"{variable}_FILE": str(path)}
    with pytest.raises(loader.OptionError, match=rf"{variable} or {variable}_FILE\. Found: both"):
        loader.Access.from_environment(environment)
    del environment[variable]
    with pytest.raises(loader.OptionError, match=rf"{variable}_FILE in the file .*secret\. Found: No such file"):
        loader.Access.from_environment(environment)
    path.write_text(f"\n{SECRET}\n", encoding="utf-8")
    with pytest.raises(
        loader.OptionError, match=rf"first line of .*secret, named by {variable}_FILE.*an empty"
    ) as refused:
        loader.Access.from_environment(environment)
    assert SECRET not in str(refused.value)


def test_a_source_accepts_only_one_kind_of_credentials(
    authority: Authority, other: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGESTRATA_CACHE", str(tmp_path / "cache"))
    split = loader.open_split(write_split_folder(tmp_path / "split", [(image_ids(3), [0] * 3)]))
    bundle = tmp_path / "bundle.zip"
    with zipfile.ZipFile(bundle, "w") as made:
        made.writestr("config.json", '{"host": "somewhere", "port": 1}')
        for name, file in {"ca.crt": authority.ca, "cert": other.certificate, "key": other.key}.items():
            made.write(file, name)
    access = loader.Access(bundle=bundle, username="me", password=SECRET)
    with pytest.raises(loader.OptionError, match=r"access, or username and password. Found: both"):
        loader.CassandraSource(split, batch_size=1, access=access, username="me", password=SECRET)
    with pytest.raises(loader.OptionError, match=r"either hosts or a bundle, which names its hosts. Found: 'here' and"):
        loader.CassandraSource(split, batch_size=1, access=access, hosts="here")
    with pytest.raises(loader.OptionError, match="No Cassandra is configured"):
        loader.CassandraSource(split, batch_size=1)
    with loader.CassandraSource(split, batch_size=1, access=access) as source:
        assert source.hosts == ()
        assert SECRET not in repr(source)
    monkeypatch.setenv("IMAGESTRATA_PASSWORD", SECRET)
    with pytest.raises(loader.OptionError, match=r"username and password, or neither. Found: only password"):
        loader.CassandraSource(split, batch_size=1, hosts="here")
    loader.CassandraSource(split, batch_size=1, hosts="here", username="me").close()
    loader.CassandraSource(split, batch_size=1, hosts="here", access=loader.Access()).close()


def test_the_reference_of_settings_names_every_variable() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "reference" / "settings.md"
    known = {f"IMAGESTRATA_{one.name.upper()}" for one in fields(loader.Access)}
    known |= {"IMAGESTRATA_PASSWORD_FILE", "IMAGESTRATA_PASSPHRASE_FILE"}
    assert known <= set(re.findall(r"\bIMAGESTRATA_\w+", page.read_text(encoding="utf-8")))
