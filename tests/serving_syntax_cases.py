"""The protocol's table: bodies that are no JSON, or no object."""

from serving_case import JSON_TENSOR, READER, REST_HANDLER_TEST, Case, error, refused


def _unparsed(name: str, body: str | bytes, message: str, source: str = "") -> Case:
    source = source or f"{READER}: {_READ_BY[message.partition('. at')[0]]}"
    return refused(name, "half_plus", body, f"JSON Parse error: {message}", source)


# Which function of RapidJSON's GenericReader finds what; the words are those of error/en.h.
_READ_BY = {
    "The document is empty": "Parse",
    "The document root must not be followed by other values": "Parse",
    "Invalid value": "ParseNull",
    "Missing a name for object member": "ParseObject",
    "Missing a colon after a name of object member": "ParseObject",
    "Missing a comma or '}' after an object member": "ParseObject",
    "Missing a comma or ']' after an array element": "ParseArray",
    "Incorrect hex digit after \\u escape in string": "ParseHex4",
    "The surrogate pair in string is invalid": "ParseStringToStream",
    "Invalid escape character in string": "ParseStringToStream",
    "Missing a closing quotation mark in string": "ParseStringToStream",
    "Number too big to be stored in double": "ParseNumber",
    "Miss fraction part in number": "ParseNumber",
    "Miss exponent in number": "ParseNumber",
}

# Offsets count bytes: `{"instances": [` has 15.
SYNTAX_CASES = [
    _unparsed("empty body", "", "The document is empty", f"{JSON_TENSOR}: ParseJson"),
    _unparsed("blank body", " \n ", "The document is empty. at offset: 3"),
    _unparsed(
        *("no JSON", "instances = [1, 2]", "Invalid value. at offset: 0"),
        f"{REST_HANDLER_TEST}: PredictRequestErrors",
    ),
    _unparsed(
        *("cut", '{"instances": [1.0'),
        "Missing a comma or ']' after an array element. at offset: 18",
    ),
    _unparsed(
        *("no comma", '{"a": 1 "b": 2}'),
        "Missing a comma or '}' after an object member. at offset: 8",
    ),
    _unparsed(
        "more after it",
        '{"instances": [1.0]} {}',
        "The document root must not be followed by other values. at offset: 21",
    ),
    _unparsed("unquoted key", "{a: 1}", "Missing a name for object member. at offset: 1"),
    _unparsed("trailing comma", '{"a": 1,}', "Missing a name for object member. at offset: 8"),
    _unparsed("no colon", '{"a" 1}', "Missing a colon after a name of object member. at offset: 5"),
    _unparsed("cut word", '{"a": nul}', "Invalid value. at offset: 9"),
    _unparsed(
        "leading zero", '{"a": 01}', "Missing a comma or '}' after an object member. at offset: 7"
    ),
    _unparsed("no fraction", '{"a": 1.}', "Miss fraction part in number. at offset: 8"),
    _unparsed("no exponent", '{"a": 1e}', "Miss exponent in number. at offset: 8"),
    _unparsed(
        "too big", '{"instances": [1e309]}', "Number too big to be stored in double. at offset: 15"
    ),
    _unparsed(
        *("too many digits", '{"instances": [%s]}' % ("9" * 400)),
        "Number too big to be stored in double. at offset: 15",
    ),
    _unparsed(
        "open string", '{"a": "b', "Missing a closing quotation mark in string. at offset: 8"
    ),
    _unparsed("line break", '{"a": "\n"}', "Invalid escape character in string. at offset: 7"),
    _unparsed("escape", '{"a": "é\\x"}', "Invalid escape character in string. at offset: 9"),
    _unparsed(
        *("hexadecimal", '{"a": "\\u00g0"}'),
        "Incorrect hex digit after \\u escape in string. at offset: 7",
    ),
    _unparsed(
        *("half a surrogate pair", '{"a": "\\ud83d"}'),
        "The surrogate pair in string is invalid. at offset: 7",
    ),
    refused(
        *("no object", "half_plus", "[1, 0.5]", "JSON Value: [\n    1,\n    0.5\n] Is not object"),
        f"{JSON_TENSOR}: ParseJson",
    ),
    refused(
        *("a number", "half_plus", "0.1", "JSON Value: 0.1 Is not object"),
        f"{JSON_TENSOR}: JsonValueToString",
    ),
    # TensorFlow Serving recurses for each level until its stack ends.
    Case(
        *("100,000 levels", "POST", "/v1/models/half_plus:predict", b"[" * 100_000, 400),
        error("JSON Parse error: Terminate parsing due to Handler error. at offset: 1000"),
        f"{JSON_TENSOR}: ParseJson, TODO(b/67042542)",
        compare="status",
        on_real=False,
    ),
]
