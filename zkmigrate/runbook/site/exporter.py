"""Fetch Prometheus text over HTTP, as node exporter serves it."""

from __future__ import annotations

from email.parser import HeaderParser
from urllib.parse import urlsplit

from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.zookeeper.clients.four_letter_client import conversation

_TYPES = ("text/plain", "application/openmetrics-text")


def metrics_text(url: str, deadline_s: float) -> Reading[str]:
    """Fetch the Prometheus text at an ``http`` URL, without following redirects.

    deadline_s: seconds for the whole answer. Returns Unknown with the causes of
    :func:`zkmigrate.zookeeper.clients.four_letter_client.conversation`; ``failed`` also for a status other
    than 200; ``garbled`` also for another content type, or fewer bytes than the server announced.
    """
    at = urlsplit(url)
    path = (at.path or "/") + (f"?{at.query}" if at.query else "")
    # HTTP/1.0: the server ends the answer by closing the connection, and sends it in one piece.
    request = f"GET {path} HTTP/1.0\r\nHost: {at.netloc}\r\nAccept: text/plain\r\n\r\n"
    answer = conversation(at.hostname or "", at.port or 80, request, url, deadline_s)
    if not isinstance(answer, Seen):
        return answer
    head, _, body = answer.value.partition("\r\n\r\n")
    first, _, rest = head.partition("\r\n")
    if first.split(" ")[1:2] != ["200"]:
        return Unknown("failed", f"{url}: answered {first[:80]!r}")
    headers = HeaderParser().parsestr(rest, headersonly=True)
    if headers.get_content_type() not in _TYPES or "content-type" not in headers:
        kind = str(headers.get("content-type", "no content type"))
        return Unknown("garbled", f"{url}: {kind[:80]!r} is not Prometheus text")
    length, came = str(headers.get("content-length", "")), len(body.encode())
    if length.isdecimal() and came < int(length):
        return Unknown("garbled", f"{url}: the answer ended after {came} of {length} bytes")
    return Seen(body)
