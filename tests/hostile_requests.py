"""What clients send at their worst: strategies for paths and bodies."""

import json
from itertools import product
from typing import Any

from hostile_bytes import damaged, odd_json
from hypothesis import strategies as st

_TEXTS = "|\0|\ud800|\U0001f600|\u2028|&<>\"'|\u202e|%s%n{0}|$(id)|DT_STRING|NaN|-1".split("|")  # noqa: SIM905
_BASE64 = "YQ==|YQ=|=|Y===|/w==|7aCA|YQ\n|*|YQ==YQ==".split("|")  # noqa: SIM905
_NUMBERS = [10**400, -(10**30), 2**63, 2**64, -(2**63) - 1, 1e308, 5e-324, 1e39, -0.0]
_SCALARS = (
    st.sampled_from([None, True, "a" * 3000, *_TEXTS, *_NUMBERS, *({"b64": x} for x in _BASE64)])
    | st.text(max_size=20)
    | st.floats()
)
_NAMES = st.sampled_from(["instances", "inputs", "signature_name", "x", "text", "b64", "factor", "", "\0"])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


def bodies(good: bytes) -> st.SearchStrategy[bytes]:
    """Bodies like a good one, and unlike any."""
    template: dict[str, Any] = json.loads(good)
    return st.one_of(
        damaged(good),
        odd_json(good),
        _VALUES.map(lambda value: _dumped(template | {list(template)[-1]: value})),
        _VALUES.map(_dumped),
        st.dictionaries(_NAMES, _VALUES, max_size=4).map(_dumped),
        st.integers(1, 5000).map(lambda n: b'{"instances": ' + b"[" * n + b"1" + b"]" * n + b"}"),
        st.binary(max_size=200),
        st.text(max_size=100).map(lambda text: text.encode("utf-16")),
    )


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def paths(model: str) -> st.SearchStrategy[bytes]:
    """Paths like the protocol's, and unlike any."""
    starts = "/v1/models/ /V1/MODELS/ //v1/models/ /v1//models/ /v2/models/ /v1/models".split()  # noqa: SIM905
    names = f"{model} {model} . .. %2e%2e ..%2f..%2fetc %00 %ff %ed%a0%80 %0d%0aX:%20y %0a".split()
    names += f"% %zz %25 \\ ~ // : * {model}/ {model};a=b {model}?x=1 {model}# %2f{model}".split()
    middles = ["", "", *(f"/versions/{each}" for each in ("1", "-1", "0", "9" * 20, "1e3", ""))]
    middles += [f"/labels/{each}" for each in ("x", "stable", "", "%00", "..")]
    ends = ["", ":predict", ":classify", ":regress", "/metadata", ":PREDICT", ":predict?x", ":x"]
    others = "/ /page/ /page/models /page/page.js /page/..%2fapp.py /page/%00 /page /healthz/"
    others += " /healthz%0a /readyz /page//etc /page/%2e%2e/app.py /monitoring/prometheus /%0a"
    alike = st.sampled_from(list(product(starts, names, middles, ends))).map("".join)
    wild = st.binary(max_size=30).map(lambda raw: b"/" + raw)
    return (alike | st.sampled_from(others.split())).map(str.encode) | wild
