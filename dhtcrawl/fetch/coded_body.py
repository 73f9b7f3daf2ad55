"""A response's body without the codings that its headers name, within a limit; without I/O.

Codings are undone by `dhtcrawl.fetch.body`. Of transfer codings only `chunked` is undone when a response arrives;
another one was never asked for (`TE`), is kept in the archive, and is undone here where the body begins as its coding
does.
"""

from __future__ import annotations

from dhtcrawl.fetch import header_fields
from dhtcrawl.fetch.body import Decoded, begins_coded, decode


def decoded_body(headers: header_fields.Headers, raw: bytes, limit: int) -> Decoded:
    """The first `limit` bytes of a body; of one that is coded so many are read, too."""
    cut, data, error = len(raw) > limit, raw[:limit], None
    encoding = header_fields.content_encoding(headers)
    transfer = header_fields.transfer_coding(headers)
    codings = encoding
    if transfer is not None and begins_coded(data, transfer):
        codings = f"{encoding or ''},{transfer}"
    elif transfer is not None:
        error = f"transfer-encoding: {transfer[:40]!r} is not undone"
    if codings is None:
        return Decoded(data, cut, error)
    decoded = decode(data, codings, limit)
    if encoding is not None and header_fields.is_coded_again(headers) and begins_coded(decoded.data, encoding):
        # The proxy that repeated the line has coded the body once more.
        again = decode(decoded.data, encoding, limit)
        cut, decoded = cut or decoded.truncated, again
    if not cut and error is None:
        return decoded
    # That what was cut off here is missing is no error of the site.
    return Decoded(decoded.data, cut or decoded.truncated, error or (None if cut else decoded.error))
