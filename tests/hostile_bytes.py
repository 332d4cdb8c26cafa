"""Strategies for files with damaged bytes, like those of users."""

import re
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

FEW = settings(
    derandomize=True,
    deadline=None,
    max_examples=12,
    database=None,
    # The first failing example is small enough; finding a smaller one would take minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

# Bytes that break readers: byte order marks, line ends of other systems, UTF-16, NUL, overlong and
# cut UTF-8, half a surrogate pair, separators, quotes, brackets, malformed numbers.
NASTY = [
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\r",
    b"\x00",
    b"\xff\xfe",
    b"\xff",
    b"\xc0\x80",
    b"\xe6\x88",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"\t",
    b"\t\t\t",
    b"\n\n",
    b"\x0b\x1c\x85",
    b'"',
    b"'",
    b"\\ud800",
    b"\\u0000",
    b"[" * 100_000,
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 5000,
    b"null",
    b"-1",
    b"true",
    b"<",
    b"&a;",
    b"]]>",
    b"</item>",
    b"<!DOCTYPE x>",
    b"&#xD800;",
    "\u2028\u200f\U0001f600".encode(),
    ("a" + "\u0301\u0316" * 200).encode(),
    b"",
    b" ",
]


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """A valid file that was cut, overwritten, doubled or filled with unexpected bytes."""
    content = valid
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(content)))
        end = draw(st.integers(begin, min(len(content), begin + 40)))
        middle = draw(st.one_of(st.sampled_from(NASTY), st.binary(max_size=20)))
        rest = draw(st.sampled_from([b"", content[end:], content[begin:]]))
        content = content[:begin] + middle + rest
    return content


@st.composite
def odd_json(draw: st.DrawFn, valid: bytes) -> bytes:
    """Valid JSON with one value, at any level, replaced by another."""
    places = [
        match.span() for match in re.finditer(rb'"[^"]*"(?!\s*:)|\b[\d.]+\b|true|false', valid)
    ]
    # Whole objects and lists too: from an opening bracket to its closing one.
    stack = []
    for match in re.finditer(rb"[\[\]{}]", valid):
        if match[0] in b"[{":
            stack.append(match.start())
        else:
            places.append((stack.pop(), match.end()))
    begin, end = draw(st.sampled_from(places))
    words = rb'null true -1 1e999 NaN "\ud800" "" "x" [] {} [[]] {"a":[1]}'.split()
    return valid[:begin] + draw(st.sampled_from([*words, b"7" * 5000])) + valid[end:]


def require_told(error: Exception, place: Path) -> None:
    """Asserts that an error message is one short line and names the file or its folder."""
    message = str(error)
    assert str(place) in message
    assert "\n" not in message
    assert len(message) < 1500
