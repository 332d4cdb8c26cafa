"""Texts as the exported graph reads them: cut to a page, and of characters alone."""

import codecs


def _to_space(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return " ", error.end


codecs.register_error("xling_tf_space", _to_space)


def readable(sentence: str, max_bytes: int) -> str:
    """Cuts a text after `max_bytes` of its UTF-8; what is no character becomes a space.

    Example:
        >>> readable("señor", 3)
        'se '
    """
    # No character is shorter than a byte: a megabyte is not encoded to keep a page of it.
    encoded = sentence[:max_bytes].encode("utf-8", "surrogatepass")
    return encoded[:max_bytes].decode("utf-8", "xling_tf_space")
