"""What clients send at their worst: strategies for paths, methods, headers and bodies."""

import json
from typing import Any

from hostile_bytes import damaged, odd_json
from hypothesis import strategies as st

_TEXTS = st.sampled_from(
    [
        *(
            "",
            "\0",
            "\ud800",
            "\udfff\ud800",
            "\U0001f600",
            "\uffff",
            "\u2028",
            "a" * 3000,
            "&<>\"'",
        ),
        *("e" + "\u0301" * 500, "\u202e", "%s%n{0}", "$(id)", "\x1b[2J", "DT_STRING", "NaN", "-1"),
    ]
)
_SCALARS = st.one_of(
    *(st.none(), st.booleans(), _TEXTS, st.text(max_size=20)),
    st.sampled_from(
        ["YQ==", "YQ=", "=", "Y===", "/w==", "wIA=", "7aCA", "YQ\n", "*", "YQ==YQ=="]
    ).map(lambda text: {"b64": text}),
    st.integers(-(2**70), 2**70),
    st.sampled_from([10**400, -(10**30), 2**63, 2**64, -(2**63) - 1, 1e308, 5e-324, 1e39, -0.0]),
    st.floats(),
)
_NAMES = st.sampled_from(
    ["instances", "inputs", "signature_name", "examples", "x", "text", "b64", "factor", "", "\0"]
)
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


def bodies(good: bytes) -> st.SearchStrategy[bytes]:
    """Bodies like a good one, and unlike any."""
    template = json.loads(good)
    return st.one_of(
        damaged(good),
        odd_json(good),
        st.builds(replaced, st.just(template), st.integers(0, 50), VALUES),
        VALUES.map(_dumped),
        st.dictionaries(_NAMES, VALUES, max_size=4).map(_dumped),
        st.builds(nested, st.sampled_from([b"[", b'{"a":', b'{"inputs":[']), st.integers(1, 5000)),
        st.binary(max_size=200),
        st.text(max_size=100).map(lambda text: text.encode("utf-16")),
    )


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def nested(opening: bytes, depth: int) -> bytes:
    """Brackets in brackets, closed again."""
    closing = opening.translate(
        bytes.maketrans(b"[{", b"]}"), delete=b'":abcdefghijklmnopqrstuvwxyz'
    )
    return b'{"instances": ' + opening * depth + b"1" + closing[::-1] * depth + b"}"


def replaced(template: Any, index: int, other: Any) -> bytes:
    """JSON with another value for the value that comes at an index, counted in depth."""
    count = 0

    def walk(value: Any) -> Any:
        nonlocal count
        count += 1
        if count - 1 == index:
            return other
        if isinstance(value, dict):
            return {key: walk(member) for key, member in value.items()}
        return [walk(member) for member in value] if isinstance(value, list) else value

    return _dumped(walk(template))


def paths(model: str) -> st.SearchStrategy[bytes]:
    """Paths like the protocol's."""
    names = st.sampled_from(
        [
            *(
                model,
                "",
                ".",
                "..",
                "%2e%2e",
                "..%2f..%2fetc",
                "%00",
                f"{model}%00",
                "%ff",
                "%ed%a0%80",
            ),
            *(
                "%0d%0aX:%20y",
                "%0a",
                "a%0ab",
                "%",
                "%zz",
                "%25",
                "a" * 5000,
                "\\",
                "~",
                "//",
                ":",
                "*",
            ),
            *(
                f"{model}/",
                f"{model};a=b",
                f"{model}?x=1",
                f"{model}#",
                f"%2f{model}",
                "%F0%9F%98%80",
            ),
        ]
    )
    middles = st.sampled_from(
        [
            *("", "/versions/1", "/versions/-1", "/versions/0", "/versions/99999999999999999999"),
            *(
                "/versions/1e3",
                "/versions/",
                "/versions/%31",
                "/versions/" + "1" * 5000,
                "/labels/x",
            ),
            *(
                "/labels/stable",
                "/labels/",
                "/labels/%00",
                "/labels/..",
                "/versions/1/labels/stable",
            ),
        ]
    )
    ends = st.sampled_from(
        [
            *("", ":predict", ":classify", ":regress", "/metadata", ":PREDICT", ":predict?x"),
            ":x",
            "/",
        ]
    )
    starts = st.sampled_from(
        ["/v1/models/", "/V1/MODELS/", "//v1/models/", "/v1//models/", "/v2/models/", "/v1/models"]
    )
    others = st.sampled_from(
        [
            *(
                "/",
                "/demo/",
                "/demo/models",
                "/demo/demo.js",
                "/demo/..%2fapp",
                "/demo/%00",
                "/demo",
            ),
            *(
                "/demo/models%0a/",
                "/healthz",
                "/healthz/",
                "/healthz%0a",
                "/readyz",
                "/healthz?x=%00",
            ),
            *("/demo//etc", "/demo/%2e%2e/routes", "/demo/%ff", "/monitoring/prometheus"),
            *(
                "/monitoring/prometheus/metrics",
                "/monitoring/prometheus/metrics/%0a",
                "/%0a",
                "/x%0ay/",
            ),
        ]
    )
    parts = st.tuples(starts, names, middles, ends).map(lambda each: "".join(each).encode())
    return parts | others.map(str.encode) | st.binary(max_size=30).map(lambda raw: b"/" + raw)


METHODS = st.sampled_from(
    [
        *(
            "GET",
            "POST",
            "PUT",
            "DELETE",
            "TRACE",
            "OPTIONS",
            "PATCH",
            "PROPFIND",
            "M-SEARCH",
            "post",
        ),
        *("CONNECT", "BREW", "", "GET GET", "PRI", "G\0ET", "POST" * 100, "HEAD" * 2),
    ]
)
HEADERS = st.lists(
    st.sampled_from(
        [
            *(b"content-length: -1", b"content-length: 3", b"content-length: 99999999999999999999"),
            *(b"content-length: " + b"0" * 5000 + b"7", b"content-length: 0x1", b"content-length:"),
            *(
                b"content-length: 99999999999",
                b"transfer-encoding: chunked",
                b"transfer-encoding: x",
            ),
            *(b"transfer-encoding: gzip, chunked", b"transfer-encoding : chunked", b"te: trailers"),
            *(
                b"expect: 100-continue",
                b"expect: x",
                b"connection: keep-alive",
                b"connection: upgrade",
            ),
            *(
                b"upgrade: websocket",
                b"upgrade: h2c",
                b"content-encoding: gzip",
                b"x: \0",
                b": y",
                b"x",
            ),
            *(
                b"content-encoding: br",
                b"host: a\r\nhost: b",
                b"x: " + b"y" * 100_000,
                b" folded: 1",
            ),
            *(
                b"x: y\r\n" * 3000,
                b"x: \xff\xfe",
                b"content-type: \xff",
                b"x:y\rz",
                b"cookie: " + b"=;" * 99,
            ),
        ]
    ),
    max_size=3,
)
CHUNKS = st.lists(
    st.sampled_from(
        [
            *(
                b"1\r\n{\r\n",
                b"0\r\n\r\n",
                b"-1\r\n",
                b"zz\r\n",
                b"ffffffffffffffffffff\r\n",
                b"2\r\n{",
            ),
            *(
                b"1;" + b"x" * 3000 + b"\r\n}\r\n",
                b"0\r\nx: y\r\n\r\n",
                b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            ),
            *(b"ffffffff\r\n", b"\r\n", b"00000000000001\r\n{\r\n", b"1\n{\n"),
        ]
    ),
    max_size=6,
).map(b"".join)
