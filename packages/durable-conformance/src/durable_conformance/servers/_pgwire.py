"""Just enough of Postgres' protocol to ask a server whether it is ready, and to create and drop databases, without a client."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

_SECONDS = 5.0
_PROTOCOL, _TLS_PLEASE = 196_608, 80_877_103
_OK, _CLEARTEXT, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 3, 10, 11, 12


class QueryError(Exception):
    """The server refused.

    Args:
        sqlstate: its five letters.
        message: its words.
    """

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(sqlstate, message)
        self.sqlstate, self.message = sqlstate, message

    def __str__(self) -> str:
        return f"{self.message} ({self.sqlstate})"


class PgWire:
    """A connection to the server at a URL such as `postgresql://user:password@127.0.0.1:5432/postgres?sslmode=require`.

    It knows the ways to log in that servers have used since version 10: none, the bare password, and SCRAM-SHA-256.

    Raises:
        OSError: nobody listens there.
        QueryError: the server lets us not in, or not yet.
    """

    def __init__(self, url: str, seconds: float = _SECONDS) -> None:
        parts = urlsplit(url)
        self._user = unquote(parts.username or "postgres")
        self._password = unquote(parts.password or "")
        host, query = parts.hostname or "127.0.0.1", parse_qs(parts.query)
        self._socket = socket.create_connection((host, parts.port or 5432), seconds)
        self._input = self._socket.makefile("rb")
        try:
            self._encrypt(host, query.get("sslmode", ["prefer"])[0], query.get("sslrootcert", [None])[0])
            self._log_in(unquote(parts.path.strip("/")) or self._user)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> PgWire:
        """Gives itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Closes the connection."""
        self.close()

    def close(self) -> None:
        """Says goodbye and closes the connection."""
        try:
            self._send(b"X", b"")
        except OSError:
            pass
        self._close()

    def _close(self) -> None:
        self._input.close()
        self._socket.close()

    def query(self, sql: str) -> list[list[str | None]]:
        """Runs statements and returns their rows as text.

        Raises:
            QueryError: the server refused.
            OSError: the connection is gone.
        """
        self._send(b"Q", sql.encode() + b"\0")
        return self._until_ready()

    def _encrypt(self, host: str, mode: str, authority: str | None) -> None:
        if mode in ("disable", "allow", "prefer"):
            return
        self._socket.sendall(struct.pack("!ii", 8, _TLS_PLEASE))
        if self._socket.recv(1) != b"S":
            raise QueryError("08000", "the server has no TLS")
        context = ssl.create_default_context(cafile=authority)
        context.check_hostname = mode == "verify-full"
        if mode == "require":
            context.verify_mode = ssl.CERT_NONE
        self._input.close()
        self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._input = self._socket.makefile("rb")

    def _log_in(self, database: str) -> None:
        pairs = ("user", self._user, "database", database, "client_encoding", "UTF8")
        body = struct.pack("!i", _PROTOCOL) + b"".join(text.encode() + b"\0" for text in pairs) + b"\0"
        self._socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self._until_ready(refused_for_good=True)

    def _send(self, kind: bytes, body: bytes) -> None:
        self._socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def _message(self) -> tuple[bytes, bytes]:
        head = self._input.read(5)
        if len(head) < 5:
            raise ConnectionError("the server closed the connection")
        return head[:1], self._input.read(struct.unpack("!i", head[1:])[0] - 4)

    def _until_ready(self, *, refused_for_good: bool = False) -> list[list[str | None]]:
        rows: list[list[str | None]] = []
        refusal: QueryError | None = None
        while True:
            kind, body = self._message()
            if kind == b"R":
                self._authenticate(body)
            elif kind == b"D":
                rows.append(_row(body))
            elif kind == b"E":
                refusal = _refusal(body)
                if refused_for_good:
                    raise refusal
            elif kind == b"Z":
                if refusal is not None:
                    raise refusal
                return rows

    def _authenticate(self, body: bytes) -> None:
        (way,) = struct.unpack("!i", body[:4])
        if way == _CLEARTEXT:
            self._send(b"p", self._password.encode() + b"\0")
        elif way == _SASL:
            self._scram()
        elif way != _OK:
            raise QueryError("28000", f"the server wants a login of kind {way}, which we do not know")

    def _scram(self) -> None:
        """SCRAM-SHA-256 as in RFC 5802 and 7677, without channel binding."""
        nonce = secrets.token_urlsafe(18)
        first = f"n=,r={nonce}"
        opening = b"n,," + first.encode()
        self._send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(opening)) + opening)
        challenge = self._sasl(_SASL_CONTINUE)
        asked = dict(pair.split("=", 1) for pair in challenge.split(","))
        if not asked["r"].startswith(nonce):
            raise QueryError("28000", "the server answered another nonce")
        salt, rounds = base64.b64decode(asked["s"]), int(asked["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), salt, rounds)
        client = hmac.digest(salted, b"Client Key", "sha256")
        last = f"c=biws,r={asked['r']}"
        signed = f"{first},{challenge},{last}".encode()
        signature = hmac.digest(hashlib.sha256(client).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(mine ^ theirs for mine, theirs in zip(client, signature, strict=True))).decode()
        self._send(b"p", f"{last},p={proof}".encode())
        self._sasl(_SASL_FINAL)

    def _sasl(self, expected: int) -> str:
        kind, body = self._message()
        if kind == b"E":
            raise _refusal(body)
        if kind != b"R" or struct.unpack("!i", body[:4])[0] != expected:
            raise QueryError("28000", "the server broke off the login")
        return body[4:].decode()


def _row(body: bytes) -> list[str | None]:
    (count,) = struct.unpack("!h", body[:2])
    values: list[str | None] = []
    at = 2
    for _ in range(count):
        (length,) = struct.unpack("!i", body[at : at + 4])
        at += 4
        values.append(None if length < 0 else body[at : at + length].decode())
        at += max(length, 0)
    return values


def _refusal(body: bytes) -> QueryError:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    return QueryError(fields.get(b"C", ""), fields.get(b"M", ""))


def query(url: str, sql: str, seconds: float = _SECONDS) -> list[list[str | None]]:
    """Runs statements on a connection of its own. Raises as `PgWire` does."""
    with PgWire(url, seconds) as connection:
        return connection.query(sql)
