"""Calls between sites by gRPC: raw bytes both ways, mutual TLS, only neighbours of the roster."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
from cryptography import x509

from . import strict
from .frame import FrameError
from .roster import Bundle, Member, fingerprint, host
from .timeouts import Limits
from .transport import REQUEST, Differs, Refused, Stopped, Unreachable

METHOD, VERSION = "/diamond.peers/call", "roster-version"
Answer = Callable[[int, bytes], Awaitable[bytes]]  # (sender, request) -> answer
CODES = grpc.StatusCode
if not strict:
    raise ImportError("grpc was imported before diamond.peers, so it would speak TLS 1.2 as well")


class Outdated(Refused):
    """A site that has an older roster than the asker; it will have the newer one soon."""


class Server:
    """Answers the neighbours of this site, at its address in the roster unless told otherwise."""

    def __init__(self, bundle: Bundle, answer: Answer, address: str | None = None):
        options = [
            ("grpc.so_reuseport", 0),  # two servers on one port would share it in silence
            ("grpc.max_receive_message_length", REQUEST),
            ("grpc.max_send_message_length", -1),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
        ]
        self._bundle, self._answer = bundle, answer
        handler = grpc.unary_unary_rpc_method_handler(self._call)
        service, method = METHOD.strip("/").split("/")
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {method: handler})]
        )
        credentials = grpc.ssl_server_credentials(
            [(bundle.key, bundle.certificate)], bundle.ca, require_client_auth=True
        )
        place = address or bundle.me.address
        try:
            self.port = self._server.add_secure_port(place, credentials)
        except RuntimeError:
            raise OSError(f"{place} cannot be listened on; is another agent there?") from None

    async def __aenter__(self) -> "Server":
        await self._server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.stop(grace=1.0)

    async def _call(self, request: bytes, context: Any) -> bytes:
        try:
            return await self._answer(self._sender(context).number, request)
        except Outdated as reason:
            await context.abort(CODES.FAILED_PRECONDITION, str(reason))
        except Stopped as reason:
            await context.abort(CODES.ABORTED, str(reason))
        except Differs as reason:
            await context.abort(CODES.OUT_OF_RANGE, str(reason))
        except Refused as reason:
            await context.abort(CODES.PERMISSION_DENIED, str(reason))
        except FrameError as reason:
            await context.abort(CODES.INVALID_ARGUMENT, str(reason))
        raise AssertionError("unreachable: abort raises")

    def _sender(self, context: Any) -> Member:
        """Who asks, by the key that its certificate proves."""
        (shown,) = context.auth_context()["x509_pem_cert"]
        key = fingerprint(x509.load_pem_x509_certificate(shown).public_key())
        sender = self._bundle.roster.by_key(key)
        if sender is None:
            raise self._unknown(key, context)
        if sender.number not in (*self._bundle.me.neighbours, self._bundle.me.number):
            raise Refused(f"{sender.name} is no neighbour of {self._bundle.me.name}")
        return sender

    def _unknown(self, key: str, context: Any) -> Exception:
        """Why a key of this authority is not taken; the version that it claims decides no more."""
        told = dict(context.invocation_metadata() or ()).get(VERSION, "")
        theirs, mine = int(told) if str(told).isdecimal() else 0, self._bundle.roster.version
        if theirs > mine:
            return Outdated(
                f"{self._bundle.me.name} has roster {mine}, not yet {theirs}; start it "
                f"again with its new bundle"
            )
        superseded = f": roster {theirs} is superseded, take the new bundle" * (theirs < mine)
        return Refused(
            f"the certificate is of this federation, but its key {key[:16]}... is not in roster "
            f"{mine} of {self._bundle.me.name}{superseded}"
        )


class Client:
    """Calls to the neighbours of this site; answers have at most `most` bytes.

    And to the site itself, at its own address unless `own` says where it listens.
    """

    def __init__(
        self, bundle: Bundle, most: int, limits: Limits = Limits(), own: str | None = None
    ):
        self._limits = limits
        self._credentials = grpc.ssl_channel_credentials(bundle.ca, bundle.key, bundle.certificate)
        self._metadata = [(VERSION, str(bundle.roster.version))]
        me = replace(bundle.me, address=own or bundle.me.address)
        self._channels = {m.number: self._channel(m, most) for m in (*bundle.neighbours, me)}

    def _channel(self, neighbour: Member, most: int) -> Any:
        options = [
            ("grpc.ssl_target_name_override", host(neighbour.fingerprint)),
            ("grpc.max_receive_message_length", most),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", int(1000 * self._limits.connect)),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", int(1000 * self._limits.connect)),
            ("grpc.enable_http_proxy", 0),
        ]
        return grpc.aio.secure_channel(neighbour.address, self._credentials, options=options)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *error: object) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def call(self, neighbour: int, request: bytes) -> bytes:
        """See `diamond.peers.transport.Transport`."""
        call = self._channels[neighbour].unary_unary(METHOD)
        try:
            return await call(request, timeout=self._limits.round, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            said = error.details() or error.code().name
            if error.code() is CODES.ABORTED:
                raise Stopped(said) from None
            if error.code() is CODES.OUT_OF_RANGE:
                raise Differs(said) from None
            if error.code() is CODES.PERMISSION_DENIED:
                raise Refused(said) from None
            raise Unreachable(_plain(said)) from None


def _plain(details: str) -> str:
    """The library's words for what usually goes wrong, in plainer ones."""
    authority = "its certificate is not of this federation's authority"
    known = {
        "CERTIFICATE_VERIFY_FAILED": f"{authority}, or has expired, or one of the clocks is wrong",
        "certificate signature failure": authority,
        "Hostname Verification": "its key is not the one in the roster",
        "WRONG_VERSION_NUMBER": "what listens there does not speak TLS",
        "Connection refused": "nothing listens there",
        "hostname lookup": "no machine of that name is known",
        "larger than max": "an answer larger than any message of this run",
    }
    return next((plain for mark, plain in known.items() if mark in details), details)
