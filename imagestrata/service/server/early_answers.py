"""Responses before the end of a body: the rest is read for a moment, then the connection is closed."""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REST_BYTES, _REST_SECONDS = 4 << 20, 2.0


class EarlyAnswers:
    """Ends requests whose response did not need the whole body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        is_whole = False

        async def receive_more() -> Message:
            nonlocal is_whole
            message = await receive()
            is_whole = not message.get("more_body", False)  # also if the client has disconnected
            return message

        async def rest() -> None:
            size = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(_REST_SECONDS):
                    while not is_whole and size < _REST_BYTES:
                        size += len((await receive_more()).get("body", b""))

        is_early = False

        async def answer(message: Message) -> None:
            nonlocal is_early
            if message["type"] == "http.response.start" and not is_whole:
                is_early = True
                MutableHeaders(scope=message)["connection"] = "close"
            if is_early and message["type"] == "http.response.body" and not message.get("more_body", False):
                # A client that is still sending receives the response only if the server reads what was sent: otherwise
                # its system may drop the response with the connection. Not all is read, as a body may have any length.
                await send({**message, "more_body": True})
                await rest()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        await self._app(scope, receive_more, answer)


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
